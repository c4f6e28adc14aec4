"""What does a classifier minimise? Cross-entropy with mixup, cutmix and label smoothing."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config.supervised import SupervisedConfig
from echoless.errors import ConfigError
from echoless.objectives.drop_path import drop_path_factors
from echoless.objectives.objective import Draws
from echoless.randomness import generator_for


class SupervisedObjective:
    """Mixup (arXiv:1710.09412) or cutmix (arXiv:1905.04899) per batch, random erasing (arXiv:1708.04896), drop path.

    Images are mixed within a micro-batch, so with mixing on, and only then, the result depends on how a batch is split.
    """

    def __init__(self, config: SupervisedConfig, classes: int, branches: int) -> None:
        self.config, self.classes, self.branches = config, classes, branches

    def draw(self, batch_size: int, seed: int, step: int) -> Draws:
        generator = generator_for(seed, "dropout", step)
        uniform = torch.rand(batch_size, 8, generator=generator)
        keep = torch.rand(batch_size, max(self.branches, 1), generator=generator)
        # One choice and one weight for the whole batch, repeated so that slicing by sample keeps them.
        cut = self._cuts(torch.rand((), generator=generator).item())
        weight = self._weight(cut, generator_for(seed, "augment", step))
        mix = torch.tensor([weight, float(cut)]).expand(batch_size, 2)
        # A seed for each sample instead of its noise, which few need: three in four are not erased.
        noise_seed = torch.randint(2**62, (batch_size,), generator=generator)
        return {"uniform": uniform, "keep": keep, "mix": mix, "noise_seed": noise_seed}

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        if labels_B is None:
            raise ConfigError("supervised training needs labels; give a labelled set, or --labels FILE.csv")
        targets = F.one_hot(labels_B, self.classes).float()
        # In this order: of a mixed image, the noise of both is mixed too (He et al. 2022, and timm).
        images = erase(images_BCHW, draws["uniform"], draws["noise_seed"], self.config.erase)
        images, targets = mix(images, targets, draws["mix"], draws["uniform"])
        logits = model(images, drop_path_factors(draws["keep"], self.config.drop_path)).float()
        smoothed = targets * (1 - self.config.label_smoothing) + self.config.label_smoothing / self.classes
        return F.cross_entropy(logits, smoothed)

    def _cuts(self, uniform: float) -> bool:
        return self.config.cutmix > 0 and (self.config.mixup == 0 or uniform < 0.5)

    def _weight(self, cut: bool, generator: torch.Generator) -> float:
        """The share of an image that stays, from Beta(a, a); 1 where nothing is mixed."""
        alpha = self.config.cutmix if cut else self.config.mixup
        if alpha == 0:
            return 1.0
        gammas = torch._standard_gamma(torch.full((2,), alpha, dtype=torch.float64), generator=generator)
        return float(gammas[0] / gammas.sum().clamp(min=1e-300))


def mix(images_BCHW: Tensor, targets_BC: Tensor, mix_B2: Tensor, uniform_B8: Tensor) -> tuple[Tensor, Tensor]:
    """Blend each image with the one at the mirrored place of the batch, or paste a box of it in."""
    weight, cut = mix_B2[0, 0], mix_B2[0, 1]
    if len(images_BCHW) < 2 or float(weight) == 1.0:
        return images_BCHW, targets_BC
    other = images_BCHW.flip(0)
    if float(cut) == 0:
        mixed = torch.lerp(other, images_BCHW, weight)
    else:
        inside = _box(images_BCHW.shape[-2:], math.sqrt(1 - float(weight)), uniform_B8[0, :2].tolist())
        mixed = images_BCHW.clone()
        mixed[..., inside[0], inside[1]] = other[..., inside[0], inside[1]]
        area = (inside[0].stop - inside[0].start) * (inside[1].stop - inside[1].start)
        weight = torch.tensor(1 - area / math.prod(images_BCHW.shape[-2:]), device=images_BCHW.device)
    return mixed, torch.lerp(targets_BC.flip(0), targets_BC, weight)


def _box(size: torch.Size, side: float, centre: list[float]) -> tuple[slice, slice]:
    """A box of `side` times the image's sides around a random centre, clipped to the image."""
    spans = []
    for length, place in zip(size, centre):
        half, middle = int(length * side) // 2, int(place * length)
        spans.append(slice(max(0, middle - half), min(length, middle + half)))
    return spans[0], spans[1]


# Algorithm 1 of arXiv:1708.04896, with noise per pixel ("pixel" mode), as He et al. 2022 use it.
def erase(images_BCHW: Tensor, uniform_B8: Tensor, noise_seed_B: Tensor, probability: float) -> Tensor:
    """With this probability, a rectangle of an image is replaced by standard normal noise, drawn for each pixel."""
    if probability == 0:
        return images_BCHW
    inside_BHW = _rectangles(images_BCHW.shape[-2:], uniform_B8) & (uniform_B8[:, 2] < probability)[:, None, None]
    erased_BCHW = images_BCHW.clone()
    for index in inside_BHW.flatten(1).any(dim=1).nonzero().flatten().tolist():
        generator = generator_for(int(noise_seed_B[index]), "augment", 0)
        noise_CHW = torch.randn(images_BCHW.shape[1:], generator=generator).to(images_BCHW)
        erased_BCHW[index] = torch.where(inside_BHW[index], noise_CHW, images_BCHW[index])
    return erased_BCHW


def _rectangles(size: torch.Size, uniform_B8: Tensor) -> Tensor:
    """One in each image (B, H, W), bool: 2 % to a third of its area, sides in a ratio of 0.3 to 1 / 0.3."""
    H, W = size
    area, ratio, top, left = uniform_B8[:, 3:7].unbind(dim=1)
    area = (0.02 + area * (1 / 3 - 0.02)) * H * W
    ratio = torch.exp((2 * ratio - 1) * math.log(10 / 3))
    height, width = (area * ratio).sqrt().clamp(max=H), (area / ratio).sqrt().clamp(max=W)
    y, x = torch.arange(H, device=uniform_B8.device), torch.arange(W, device=uniform_B8.device)
    rows = _within(y, top * (H - height), height)
    columns = _within(x, left * (W - width), width)
    return rows[:, :, None] & columns[:, None, :]


def _within(place_X: Tensor, start_B: Tensor, length_B: Tensor) -> Tensor:
    return (place_X >= start_B[:, None]) & (place_X < (start_B + length_B)[:, None])
