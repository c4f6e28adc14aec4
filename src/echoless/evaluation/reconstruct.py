"""How well are hidden patches reconstructed? Truth, masked input and reconstruction of a masked autoencoder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from echoless.config import DataConfig, MaskedConfig
from echoless.data import Images, evaluation_batches
from echoless.data.subset import draw_images
from echoless.errors import RunError
from echoless.models import MAE, patchify, unpatchify
from echoless.models.layers import take_rows
from echoless.objectives import random_masking
from echoless.randomness import generator_for
from echoless.runs.open import load_model


@dataclass(frozen=True)
class Reconstructions:
    """Each (I, C, H, W) in [0, 1]. `true_statistics`: a normalised patch was undone with the hidden patch's own mean
    and spread, which the model never saw; a figure must say so."""

    truth: Tensor
    masked: Tensor
    reconstructed: Tensor
    true_statistics: bool


def open_mae(run: Path) -> tuple[MAE, MaskedConfig, DataConfig]:
    """The whole model of a run, decoder included, from its newest valid checkpoint."""
    whole = load_model(run)
    objective = whole.config.objective
    if not isinstance(objective, MaskedConfig):
        kind = whole.config.model.kind
        raise RunError(f"reconstruct needs a masked autoencoder (kind mae), but {run} holds a model of kind {kind!r}")
    return whole.model, objective, whole.config.data


@torch.no_grad()
def reconstruct(run: Path, images: Images, *, count: int, seed: int) -> Reconstructions:
    """`count` images drawn by `seed`, masked as in training."""
    model, objective, data = open_mae(run)
    encoder = model.config.encoder
    ids = draw_images(images, count, seed=seed)
    batches = evaluation_batches(
        images, size=encoder.image_size, batch_size=len(ids), mean=data.mean, std=data.std, ids=ids, workers=0
    )
    pixels = next(iter(batches)).images_BCHW
    patches = patchify(pixels, encoder.patch_size)
    masking = random_masking(len(pixels), patches.shape[1], objective.mask_ratio, generator_for(seed, "mask", 0))
    hidden, predicted = take_rows(patches, masking.hidden_BM), model(pixels, masking)
    if objective.normalize_pixels:
        variance, mean = torch.var_mean(hidden, dim=-1, keepdim=True)
        predicted = predicted * (variance + 1e-6).sqrt() + mean
    index = masking.hidden_BM[..., None].expand_as(predicted)
    mean, std = (torch.tensor(values)[:, None, None] for values in (data.mean, data.std))

    def picture(values_BNP: Tensor) -> Tensor:
        return (unpatchify(values_BNP, encoder.patch_size, encoder.grid) * std + mean).clamp(0, 1)

    grey = torch.zeros_like(hidden)  # the mean of the data, after normalisation
    return Reconstructions(
        picture(patches),
        picture(patches.scatter(1, index, grey)),
        picture(patches.scatter(1, index, predicted)),
        objective.normalize_pixels,
    )
