"""What does RandAugment (arXiv:1909.13719) do to an image? Two operations, each drawn from fifteen and with chance 1/2.

The operations, their strengths and their chances are those of timm's `rand-m9-mstd0.5-inc1`, with which He et al. 2022
fine-tune: the magnitude is normal around 9 with deviation 0.5, from 0 to 10, and a larger one always changes an image
more. They are Pillow's, so they apply to images of 8 bits with one channel or three.

Draws are a row of uniform numbers for each sample of the global batch, sliced as the samples are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import torch
from PIL import Image, ImageEnhance, ImageOps

from echoless.config.checks import require
from echoless.config.counts import counted
from echoless.data.images import Images
from echoless.data.resample import Array

OPERATIONS_PER_IMAGE = 2
CHANCE = 0.5
DEVIATION = 0.5
LARGEST = 10.0
_NUMBERS = 4  # for each operation: which, whether, how much, in which direction

Fill = tuple[int, ...]  # what comes in from outside the image, by channel
Operation = Callable[[Image.Image, float, Fill], Image.Image]


def allows_rand_augment(images: Images) -> bool:
    return images.bits == 8 and images.shape.channels in (1, 3)


def require_rand_augment(magnitude: float | None, images: Images) -> None:
    """Refuses images that the operations do not apply to."""
    if magnitude is None:
        return
    has = f"{images.bits}-bit images with {counted(images.shape.channels, 'channel')}"
    allowed = f"0 (off) with {has}, because it needs 8 bits and one channel or three"
    require(allows_rand_augment(images), "rand_augment", magnitude, allowed)


def draw_operations(batch_size: int, generator: torch.Generator) -> Array:
    """Every uniform number of a global batch (B, 8)."""
    numbers = OPERATIONS_PER_IMAGE * _NUMBERS
    return torch.rand(batch_size, numbers, generator=generator, dtype=torch.float64).numpy()


def rand_augment(pixels_BCHW: Array, uniform_B8: Array, magnitude: float, mean: Sequence[float]) -> Array:
    """uint8 as given; mean: of each channel, from 0 to 1, which fills what a moved image leaves empty."""
    fill = tuple(min(255, round(255 * value)) for value in mean)
    return np.stack([_change(pixels, row, magnitude, fill) for pixels, row in zip(pixels_BCHW, uniform_B8)])


def _change(pixels_CHW: Array, uniform_8: Array, magnitude: float, fill: Fill) -> Array:
    steps = [step for row in uniform_8.reshape(-1, _NUMBERS) if (step := read_step(row, magnitude)) is not None]
    if not steps:
        return pixels_CHW
    grey = len(pixels_CHW) == 1
    image = Image.fromarray(pixels_CHW[0] if grey else np.ascontiguousarray(pixels_CHW.transpose(1, 2, 0)))
    for step in steps:
        image = OPERATIONS[step.name](image, step.argument, fill)
    changed = np.asarray(image)
    return changed[None] if grey else changed.transpose(2, 0, 1)


class Step(NamedTuple):
    """An operation and the number it takes."""

    name: str
    argument: float


def read_step(uniform_4: Iterable[float], magnitude: float) -> Step | None:
    """What four uniform numbers mean; None where nothing is done."""
    which, whether, how_much, direction = map(float, uniform_4)
    if whether >= CHANCE:
        return None
    # Never 0 or 1, at which the normal distribution is infinite; the clamp below is far inside.
    normal = NormalDist(magnitude, DEVIATION).inv_cdf(min(max(how_much, 1e-12), 1 - 1e-12))
    name = list(OPERATIONS)[int(which * len(OPERATIONS))]
    share = min(max(normal, 0.0), LARGEST) / LARGEST
    return Step(name, ARGUMENTS[name](share, -1.0 if direction < 0.5 else 1.0))


# Share of the largest magnitude, and a sign -> the number that the operation takes.
ARGUMENTS: dict[str, Callable[[float, float], float]] = {
    "autocontrast": lambda share, sign: 0.0,
    "equalize": lambda share, sign: 0.0,
    "invert": lambda share, sign: 0.0,
    "rotate": lambda share, sign: sign * 30 * share,  # degrees
    "posterize": lambda share, sign: 4 - int(4 * share),  # bits that stay
    "solarize": lambda share, sign: 256 - min(256, int(256 * share)),  # levels from here on are inverted
    "solarize_add": lambda share, sign: min(128, int(110 * share)),
    "color": lambda share, sign: max(0.1, 1 + sign * 0.9 * share),
    "contrast": lambda share, sign: max(0.1, 1 + sign * 0.9 * share),
    "brightness": lambda share, sign: max(0.1, 1 + sign * 0.9 * share),
    "sharpness": lambda share, sign: max(0.1, 1 + sign * 0.9 * share),
    "shear_x": lambda share, sign: sign * 0.3 * share,
    "shear_y": lambda share, sign: sign * 0.3 * share,
    "translate_x": lambda share, sign: sign * 0.45 * share,  # of the width
    "translate_y": lambda share, sign: sign * 0.45 * share,
}


def _move(image: Image.Image, matrix: tuple[float, ...], fill: Fill) -> Image.Image:
    colour = fill if len(fill) > 1 else fill[0]
    return image.transform(
        image.size, Image.Transform.AFFINE, matrix, resample=Image.Resampling.BICUBIC, fillcolor=colour
    )


def _rotate(image: Image.Image, degrees: float, fill: Fill) -> Image.Image:
    colour = fill if len(fill) > 1 else fill[0]
    return image.rotate(degrees, resample=Image.Resampling.BICUBIC, fillcolor=colour)


def _posterize(image: Image.Image, bits: float, fill: Fill) -> Image.Image:
    """Older versions of Pillow made a black image of 0 bits; newer ones refuse it."""
    return ImageOps.posterize(image, int(bits)) if bits >= 1 else image.point([0] * 256 * len(image.getbands()))


def _solarize_add(image: Image.Image, amount: float, fill: Fill) -> Image.Image:
    """Dark levels become lighter."""
    levels = [min(255, level + int(amount)) if level < 128 else level for level in range(256)]
    return image.point(levels * len(image.getbands()))


OPERATIONS: dict[str, Operation] = {
    "autocontrast": lambda image, _, fill: ImageOps.autocontrast(image),
    "equalize": lambda image, _, fill: ImageOps.equalize(image),
    "invert": lambda image, _, fill: ImageOps.invert(image),
    "rotate": _rotate,
    "posterize": _posterize,
    "solarize": lambda image, threshold, fill: ImageOps.solarize(image, int(threshold)),
    "solarize_add": _solarize_add,
    "color": lambda image, factor, fill: ImageEnhance.Color(image).enhance(factor),
    "contrast": lambda image, factor, fill: ImageEnhance.Contrast(image).enhance(factor),
    "brightness": lambda image, factor, fill: ImageEnhance.Brightness(image).enhance(factor),
    "sharpness": lambda image, factor, fill: ImageEnhance.Sharpness(image).enhance(factor),
    "shear_x": lambda image, factor, fill: _move(image, (1, factor, 0, 0, 1, 0), fill),
    "shear_y": lambda image, factor, fill: _move(image, (1, 0, 0, factor, 1, 0), fill),
    "translate_x": lambda image, share, fill: _move(image, (1, 0, share * image.width, 0, 1, 0), fill),
    "translate_y": lambda image, share, fill: _move(image, (1, 0, 0, 0, 1, share * image.height), fill),
}
