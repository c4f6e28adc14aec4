"""What is drawn at random for each image of a batch, and how does the batch become the model's input?

The draws of a step are made for the global batch and sliced, so that neither rank nor worker shows in them. Output is
float32 BCHW: grey levels over the largest level of the sample type (255 or 65535), then normalised per channel.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from echoless.data.resample import Array, Boxes, resample
from echoless.errors import ConfigError

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """Random resized crop and horizontal flip. scale: share of the image's area; ratio: width over height.

    scale=None: flips alone, of the centre that evaluation sees.
    """

    scale: tuple[float, float] | None = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    rand_augment: float | None = None  # magnitude of data/rand_augment.py, 0 to 10; None: none

    def __post_init__(self) -> None:
        if self.scale is not None and not 0 < self.scale[0] <= self.scale[1] <= 1:
            raise ConfigError(f"scale is {self.scale}; allowed: two numbers, 0 < low <= high <= 1")
        if not 0 < self.ratio[0] <= self.ratio[1]:
            raise ConfigError(f"ratio is {self.ratio}; allowed: two numbers, 0 < low <= high")
        if not 0 <= self.flip <= 1:
            raise ConfigError(f"flip is {self.flip}; allowed: a probability, 0 to 1")


def draw(batch_size: int, generator: torch.Generator) -> Array:
    """Every uniform number the augmentation of a global batch may need: the same count for each sample."""
    return torch.rand(batch_size, 4 * _ATTEMPTS + 1, generator=generator, dtype=torch.float64).numpy()


def random_boxes(uniform_BN: Array, shapes_B2: Array, config: AugmentConfig) -> Boxes:
    """Random resized crops for images of the given (height, width).

    Area and log ratio are uniform; of ten attempts the first that fits the image is taken, else the largest centred box
    with an allowed ratio.
    """
    assert config.scale is not None
    attempts = uniform_BN[:, :-1].reshape(len(uniform_BN), _ATTEMPTS, 4)
    height_B1, width_B1 = shapes_B2[:, :1], shapes_B2[:, 1:]
    area = height_B1 * width_B1 * _between(attempts[:, :, 0], *config.scale)
    ratio = np.exp(_between(attempts[:, :, 1], *np.log(config.ratio)))
    widths, heights = np.rint(np.sqrt(area * ratio)), np.rint(np.sqrt(area / ratio))
    fits = (widths >= 1) & (heights >= 1) & (widths <= width_B1) & (heights <= height_B1)
    first = fits.argmax(axis=1)
    each = np.arange(len(first))
    height, width = heights[each, first], widths[each, first]
    top = np.floor(attempts[each, first, 2] * (shapes_B2[:, 0] - height + 1))
    left = np.floor(attempts[each, first, 3] * (shapes_B2[:, 1] - width + 1))
    fallback = _largest_centred(shapes_B2, *config.ratio)
    found = fits.any(axis=1)
    top, left, height, width = (
        np.where(found, drawn, other) for drawn, other in zip((top, left, height, width), fallback)
    )
    return Boxes(top, left, height, width, uniform_BN[:, -1] < config.flip)


def centre_boxes(shapes_B2: Array, size: tuple[int, int], fraction: float = 1.0) -> Boxes:
    """The largest centred box of the output's proportions, shrunk to `fraction` of its sides."""
    ratio = size[1] / size[0]
    top, left, height, width = _largest_centred(shapes_B2, ratio, ratio)
    margin_y, margin_x = height * (1 - fraction) / 2, width * (1 - fraction) / 2
    no_flip = np.zeros(len(shapes_B2), dtype=bool)
    return Boxes(top + margin_y, left + margin_x, height * fraction, width * fraction, no_flip)


def augment(
    pixels: Array | list[Array],
    uniform_BN: Array,
    *,
    size: tuple[int, int],
    config: AugmentConfig,
    mean: Sequence[float],
    std: Sequence[float],
) -> Tensor:
    """Crop, flip and normalise; `uniform_BN` holds the draws of exactly these samples."""
    shapes_B2 = image_shapes(pixels)
    if config.scale is None:
        boxes = centre_boxes(shapes_B2, size)._replace(flip_B=uniform_BN[:, -1] < config.flip)
    else:
        boxes = random_boxes(uniform_BN, shapes_B2, config)
    return _model_input(pixels, boxes, size, mean, std)


def resize_and_crop(
    pixels: Array | list[Array],
    *,
    size: tuple[int, int],
    mean: Sequence[float],
    std: Sequence[float],
    fraction: float = 1.0,
) -> Tensor:
    """The transform of evaluation: resize until the image covers `size`, crop the centre, normalise."""
    boxes = centre_boxes(image_shapes(pixels), size, fraction)
    return _model_input(pixels, boxes, size, mean, std)


def image_shapes(pixels: Array | list[Array]) -> Array:
    """shapes_B2: height and width of each image."""
    if isinstance(pixels, np.ndarray):
        return np.tile(np.array(pixels.shape[2:]), (len(pixels), 1))
    return np.array([image.shape[1:] for image in pixels])


def _between(uniform: Array, low: float, high: float) -> Array:
    return low + uniform * (high - low)


def _largest_centred(shapes_B2: Array, low: float, high: float) -> tuple[Array, Array, Array, Array]:
    height, width = shapes_B2[:, 0].astype(np.float64), shapes_B2[:, 1].astype(np.float64)
    ratio = np.clip(width / height, low, high)
    box_height, box_width = np.minimum(height, width / ratio), np.minimum(width, height * ratio)
    return (height - box_height) / 2, (width - box_width) / 2, box_height, box_width


def _model_input(
    pixels: Array | list[Array], boxes: Boxes, size: tuple[int, int], mean: Sequence[float], std: Sequence[float]
) -> Tensor:
    spread = np.array(std, dtype=np.float64)
    gain_C, shift_C = 1 / (spread * np.iinfo(pixels[0].dtype).max), np.array(mean) / spread
    return torch.from_numpy(resample(pixels, boxes, size, gain_C, shift_C).astype(np.float32, copy=False))
