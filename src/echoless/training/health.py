"""Is training healthy? Feature norms of every block and effective rank of a fixed probe batch, without labels."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from echoless.data import Images, Latents, evaluation_batches
from echoless.measures.rank import rank_paper, rankme
from echoless.models import Features
from echoless.objectives import DiffusionObjective, FlowObjective, Objective, noised
from echoless.randomness import generator_for

PROBE_IMAGES = 256
PROBE_LEVEL = 0.1  # noise level for diffusion models, whose features are best at a low one


def probe_batch(
    images: Images, size: tuple[int, int], mean: tuple[float, ...], std: tuple[float, ...], seed: int
) -> Tensor:
    """The same few images at every measurement, drawn once from the seed."""
    ids = _probe_ids(images, seed)
    batches = evaluation_batches(images, size=size, batch_size=64, mean=mean, std=std, ids=ids, workers=0)
    return torch.cat([batch.images_BCHW for batch in batches])


def probe_latents(images: Images, latents: Latents, seed: int) -> Tensor:
    """The same for latents: the mean of each, not mirrored."""
    ids = torch.tensor(_probe_ids(images, seed))
    return latents.draw(ids, torch.zeros(len(ids)), torch.zeros(len(ids), *latents.shape))


def _probe_ids(images: Images, seed: int) -> list[int]:
    order = torch.randperm(len(images), generator=generator_for(seed, "probe", 0)).tolist()
    return [index for index in order if index not in images.excluded][:PROBE_IMAGES]


def look(model: nn.Module, objective: Objective, probe_BCHW: Tensor, device: torch.device) -> dict[str, Any]:
    """Mean token norm of every block's output, and the rank of the last block's class tokens and pooled features.

    Where there is no class token, the pooled features stand for it.
    """
    norms: dict[str, list[Tensor]] = {}
    tokens, pooled = [], []
    for index, images in enumerate(probe_BCHW.split(64)):
        features = _features(model, objective, images.to(device), index)
        for name in features.block_outputs:
            norms.setdefault(name.split("/")[0], []).append(features[name].norm(dim=-1).mean())
        tokens.append(features.pool(how="cls" if features.has_class_token else "mean"))
        pooled.append(features.pool(how="mean"))
    return {
        "feature_norm": {block: float(torch.stack(values).mean()) for block, values in norms.items()},
        "rank_paper": float(rank_paper(torch.cat(tokens).float().cpu())),
        "rankme": float(rankme(torch.cat(pooled).float().cpu())),
    }


def _features(model: Any, objective: Objective, images_BCHW: Tensor, piece: int) -> Features:
    """Features of the images; a diffusion model gets a little noise, the same at every call."""
    if not model.config.body.denoises:
        return model.features(images_BCHW)
    assert isinstance(objective, DiffusionObjective | FlowObjective)
    noise = torch.randn(images_BCHW.shape, generator=generator_for(0, "probe", piece)).to(images_BCHW.device)
    return model.features(*noised(objective, images_BCHW, PROBE_LEVEL, noise))
