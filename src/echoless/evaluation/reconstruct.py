"""What does a masked autoencoder see in the hidden patches? Truth, masked input and reconstruction, side by side."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from echoless.config import DataConfig, MAEConfig, MaskedConfig, RunConfig, from_dict
from echoless.data import Images, evaluation_batches
from echoless.errors import RunError
from echoless.models import MAE, patchify, unpatchify
from echoless.models.layers import take_rows
from echoless.objectives import random_masking
from echoless.randomness import generator_for
from echoless.runs import find_latest_valid, load_checkpoint


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
    found = find_latest_valid(run / "checkpoints")
    if found is None:
        raise RunError(f"{run} has no checkpoint, and reconstructions need the decoder; allowed: a run with one")
    checkpoint = load_checkpoint(found.path)
    config = from_dict(RunConfig, checkpoint.manifest["config"])
    if not isinstance(config.model, MAEConfig) or not isinstance(config.objective, MaskedConfig):
        raise RunError(f"{run} is not a masked autoencoder, and only those reconstruct")
    model = MAE(config.model)
    tensors = checkpoint.tensors["model"]
    if "ema" in checkpoint.tensors:
        averaged = checkpoint.tensors["ema"]
        tensors = {name.removeprefix("module."): value for name, value in averaged.items() if name != "n_averaged"}
    model.load_state_dict(tensors)
    return model.eval(), config.objective, config.data


@torch.no_grad()
def reconstruct(run: Path, images: Images, *, count: int, seed: int) -> Reconstructions:
    """The first `count` usable images, masked as in training."""
    model, objective, data = open_mae(run)
    encoder = model.config.encoder
    ids = [index for index in range(len(images)) if index not in images.excluded][:count]
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
