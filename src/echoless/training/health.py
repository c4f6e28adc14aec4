"""Is the run healthy, without labels? Feature norms by block and the effective rank of a fixed probe batch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from echoless.data import Images, evaluation_batches
from echoless.measures.rank import rank_paper, rankme
from echoless.models import Features
from echoless.randomness import generator_for

PROBE_IMAGES = 256


def probe_batch(
    images: Images, size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...], seed: int
) -> Tensor:
    """The same few images at every look, drawn once from the seed."""
    order = torch.randperm(len(images), generator=generator_for(seed, "probe", 0)).tolist()
    ids = [index for index in order if index not in images.excluded][:PROBE_IMAGES]
    batches = evaluation_batches(images, size=size, batch_size=64, mean=mean, std=std, ids=ids, workers=0)
    return torch.cat([batch.images_BCHW for batch in batches])


def look(model: nn.Module, probe_BCHW: Tensor, device: torch.device) -> dict[str, Any]:
    """Mean token norm of every block's output, and the rank of the last block's class tokens and pooled features."""
    norms: dict[str, list[Tensor]] = {}
    tokens, pooled = [], []
    for images in probe_BCHW.split(64):
        features: Features = model.features(images.to(device))  # type: ignore[operator]
        outputs = [name for name in features if name.endswith("/+mlp")]
        for name in outputs:
            norms.setdefault(name.split("/")[0], []).append(features[name].norm(dim=-1).mean())
        tokens.append(features.pool(how="cls"))
        pooled.append(features.pool(how="mean"))
    return {
        "feature_norm": {block: float(torch.stack(values).mean()) for block, values in norms.items()},
        "rank_paper": float(rank_paper(torch.cat(tokens).float().cpu())),
        "rankme": float(rankme(torch.cat(pooled).float().cpu())),
    }
