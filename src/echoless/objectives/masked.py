"""What does a masked autoencoder minimise? The squared error on the hidden patches. (Legend: models/layers.py.)"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config import MaskedConfig
from echoless.config.counts import counted
from echoless.errors import ConfigError
from echoless.models.layers import patchify, take_rows
from echoless.models.mae import MAE, Masking
from echoless.objectives.objective import Draws
from echoless.randomness import generator_for


# Section 3 of arXiv:2111.06377: a uniform random subset of patches, drawn for each sample.
def random_masking(batch: int, patches: int, ratio: float, generator: torch.Generator) -> Masking:
    """Hide `ratio` of the patches of every sample."""
    return masking_from_noise(torch.rand(batch, patches, generator=generator), ratio)


def masking_from_noise(noise_BN: Tensor, ratio: float) -> Masking:
    """The patches with the smallest noise are visible, int(N * (1 - ratio)) of them."""
    if not 0.0 < ratio < 1.0:
        raise ConfigError(f"mask_ratio is {ratio!r}; allowed: a number in (0, 1)")
    patches = noise_BN.shape[1]
    visible = int(patches * (1.0 - ratio))
    if visible == 0:
        largest = math.floor((1 - 1 / patches) * 1e4) / 1e4
        other = f", or mask_ratio {largest:g} at most" if patches > 1 else ""
        raise ConfigError(
            f"mask_ratio {ratio!r} leaves none of {counted(patches, 'patch', 'patches')} visible; give a smaller "
            f"patch_size{other}"
        )
    return Masking(noise_BN.argsort(dim=1), visible)


# Section 3 of arXiv:2111.06377, "Reconstruction target".
def patch_targets(patches_BMP: Tensor, normalize: bool) -> Tensor:
    """The pixels, or each patch normalised to zero mean and unit variance."""
    if not normalize:
        return patches_BMP
    # In two passes: torch.var_mean updates both value by value, which takes ten times as long on a CPU.
    centred = patches_BMP - patches_BMP.mean(dim=-1, keepdim=True)
    variance = centred.square().sum(dim=-1, keepdim=True) / (patches_BMP.shape[-1] - 1)
    return centred / (variance + 1e-6).sqrt()


# Section 3 of arXiv:2111.06377: mean squared error, on the hidden patches only.
def masked_loss(model: MAE, images_BCHW: Tensor, masking: Masking, config: MaskedConfig) -> Tensor:
    """A scalar: the mean over hidden patches of every sample."""
    predicted = model(images_BCHW, masking)
    hidden = take_rows(patchify(images_BCHW, model.config.encoder.patch_size), masking.hidden_BM)
    return F.mse_loss(predicted.float(), patch_targets(hidden, config.normalize_pixels))


# Section 3 of arXiv:2111.06377, as an objective that can be trained.
class MaskedObjective:
    """`masked_loss` with the mask of each sample drawn from (seed, step)."""

    def __init__(self, config: MaskedConfig, patches: int) -> None:
        masking_from_noise(torch.zeros(1, patches), config.mask_ratio)  # refuses a ratio that hides everything
        self.config, self.patches = config, patches

    def draw(self, batch_size: int, seed: int, step: int) -> Draws:
        return {"mask": torch.rand(batch_size, self.patches, generator=generator_for(seed, "mask", step))}

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        assert isinstance(model, MAE)
        return masked_loss(model, images_BCHW, masking_from_noise(draws["mask"], self.config.mask_ratio), self.config)
