"""What is drawn at random for each image of a batch, and how does the batch become the model's input?

The draws of a step are made for the global batch and sliced, so that neither rank nor worker shows in them. Output is
float32 BCHW: grey levels over the largest level of the sample type (255 or 65535), then normalised per channel.
Large images (see `resizing`) are cropped and resized as torchvision does it, small ones by `resample`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from echoless.data.resample import Array, Boxes, resample
from echoless.data.resizing import BY_SIZE, DIFFUSION, Filter, Framing, normalised, resample_large
from echoless.errors import ConfigError

_ATTEMPTS = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class AugmentConfig:
    """Random resized crop and horizontal flip. scale: share of the image's area; ratio: width over height.

    scale=None: flips alone, of the largest centred crop. interpolation: bicubic cuts each crop out and resizes it as
    torchvision does; bilinear is for small images. cut_to_fit: a box that is longer than its image is cut, as in the
    linear probe of He et al. 2022; otherwise another one is drawn, as in torchvision and in their pretraining.
    """

    scale: tuple[float, float] | None = (0.2, 1.0)
    ratio: tuple[float, float] = (3 / 4, 4 / 3)
    flip: float = 0.5
    interpolation: Filter = "bilinear"
    cut_to_fit: bool = False
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
    if config.cut_to_fit:
        widths, heights = np.minimum(widths, width_B1), np.minimum(heights, height_B1)
    fits = (widths >= 1) & (heights >= 1) & (widths <= width_B1) & (heights <= height_B1)
    first = fits.argmax(axis=1)
    each = np.arange(len(first))
    height, width = heights[each, first], widths[each, first]
    top = np.floor(attempts[each, first, 2] * (shapes_B2[:, 0] - height + 1))
    left = np.floor(attempts[each, first, 3] * (shapes_B2[:, 1] - width + 1))
    _, _, *sides = _largest_centred(shapes_B2, *config.ratio)
    fallback = _whole_pixels(shapes_B2, *sides)
    found = fits.any(axis=1)
    top, left, height, width = (
        np.where(found, drawn, other) for drawn, other in zip((top, left, height, width), fallback)
    )
    return Boxes(top, left, height, width, uniform_BN[:, -1] < config.flip)


def centre_boxes(shapes_B2: Array, size: tuple[int, int]) -> Boxes:
    """The largest centred box of the output's proportions."""
    ratio = size[1] / size[0]
    return Boxes(*_largest_centred(shapes_B2, ratio, ratio), np.zeros(len(shapes_B2), dtype=bool))


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
    if config.scale is None:
        return _centre_or_mirrored(pixels, uniform_BN, size, config, mean, std)
    boxes = random_boxes(uniform_BN, image_shapes(pixels), config)
    return _model_input(pixels, boxes, size, mean, std, config.interpolation)


def sampler(interpolation: Filter) -> Callable[..., Array]:
    """The function that crops and resizes by this filter: pixels, boxes, size, gain and shift to BCHW."""
    return resample if interpolation == "bilinear" else resample_large


def _centre_or_mirrored(
    pixels: Array | list[Array],
    uniform_BN: Array,
    size: tuple[int, int],
    config: AugmentConfig,
    mean: Sequence[float],
    std: Sequence[float],
) -> Tensor:
    flip_B = uniform_BN[:, -1] < config.flip
    if config.interpolation == "bicubic":
        framing = replace(DIFFUSION, every=True)  # they may have been reduced to a size that counts as small
        seen = resize_and_crop(pixels, size=size, mean=mean, std=std, framing=framing)
        return torch.where(torch.from_numpy(flip_B)[:, None, None, None], seen.flip(-1), seen)
    boxes = centre_boxes(image_shapes(pixels), size)._replace(flip_B=flip_B)
    return _model_input(pixels, boxes, size, mean, std)


def resize_and_crop(
    pixels: Array | list[Array],
    *,
    size: tuple[int, int],
    mean: Sequence[float],
    std: Sequence[float],
    framing: Framing = BY_SIZE,
) -> Tensor:
    """The transform of evaluation: resize, crop the centre, normalise. Small images are used whole."""
    framed_B = np.array([framing.applies_to(image) for image in pixels])
    if not framed_B.any():
        return _model_input(pixels, centre_boxes(image_shapes(pixels), size), size, mean, std)
    gain_C, shift_C = _scaling(pixels[0].dtype, mean, std)
    levels = [framing.frame(image, size) for image, framed in zip(pixels, framed_B) if framed]
    out = np.empty((len(pixels), *levels[0].shape), dtype=np.float32)
    out[framed_B] = normalised(levels, gain_C, shift_C)
    if not framed_B.all():
        small = [image for image, framed in zip(pixels, framed_B) if not framed]
        out[~framed_B] = _model_input(small, centre_boxes(image_shapes(small), size), size, mean, std).numpy()
    return torch.from_numpy(out)


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


def _whole_pixels(shapes_B2: Array, height: Array, width: Array) -> tuple[Array, ...]:
    """A centred box rounded as torchvision rounds it."""
    height, width = np.rint(height), np.rint(width)
    return (shapes_B2[:, 0] - height) // 2, (shapes_B2[:, 1] - width) // 2, height, width


def _scaling(pixel_type: np.dtype, mean: Sequence[float], std: Sequence[float]) -> tuple[Array, Array]:
    """What a grey level is multiplied by, and what is subtracted then."""
    spread = np.array(std, dtype=np.float64)
    return 1 / (spread * np.iinfo(pixel_type).max), np.array(mean) / spread


def _model_input(
    pixels: Array | list[Array],
    boxes: Boxes,
    size: tuple[int, int],
    mean: Sequence[float],
    std: Sequence[float],
    interpolation: Filter = "bilinear",
) -> Tensor:
    gain_C, shift_C = _scaling(pixels[0].dtype, mean, std)
    resized = sampler(interpolation)(pixels, boxes, size, gain_C, shift_C)
    return torch.from_numpy(resized.astype(np.float32, copy=False))
