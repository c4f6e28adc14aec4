"""How does one image become several views of itself? Crops, colours, blur and solarisation, a whole batch at a time.

A view's draws are a row of uniform numbers for each sample of the global batch, sliced as the samples are, and every
operation works on each sample alone: additions, products and sums along one image, which round the same in any batch.
Changes are made on levels in [0, 1]; normalisation comes last.

Letters: B batch, C channels, H W pixels, K taps of a blur.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from echoless.config.views import ViewConfig
from echoless.data.augment import AugmentConfig, image_shapes, random_boxes, sampler
from echoless.data.augment import draw as draw_crops
from echoless.data.resample import Array
from echoless.data.resizing import Filter

_CHANGES = 9  # uniform numbers of a view beside those of its crop: jitter and its four, grey, blur and sigma, solarise
_LUMA = np.array([0.299, 0.587, 0.114], dtype=np.float32)  # ITU-R BT.601
_BLUR_SIDE = 224


def draw_views(batch_size: int, views: int, generator: torch.Generator) -> list[Array]:
    """For every view the uniform numbers (B, N) of a global batch: the same count for each sample and view."""
    return [
        np.concatenate(
            [
                draw_crops(batch_size, generator),
                torch.rand(batch_size, _CHANGES, generator=generator, dtype=torch.float64).numpy(),
            ],
            axis=1,
        )
        for _ in range(views)
    ]


def make_view(
    pixels: Array | list[Array],
    uniform_BN: Array,
    view: ViewConfig,
    *,
    mean: Sequence[float],
    std: Sequence[float],
    interpolation: Filter = "bilinear",
) -> Tensor:
    """float32 BCHW, normalised; `uniform_BN` holds the draws of exactly these samples."""
    crops, changes = uniform_BN[:, :-_CHANGES], uniform_BN[:, -_CHANGES:]
    boxes = random_boxes(crops, image_shapes(pixels), AugmentConfig(scale=view.scale, flip=view.flip))
    levels = sampler(interpolation)(pixels, boxes, view.size, 1 / np.iinfo(pixels[0].dtype).max)
    changed = _change(levels.astype(np.float32, copy=False), changes, view)
    mean_C11, std_C11 = (np.array(values, dtype=np.float32)[:, None, None] for values in (mean, std))
    return torch.from_numpy((changed - mean_C11) / std_C11)


def _change(levels_BCHW: Array, uniform_B9: Array, view: ViewConfig) -> Array:
    """Colour jitter in a fixed order (brightness, contrast, saturation, hue), grey, blur, solarise."""
    draws = uniform_B9.T
    jittered, turned_grey, blurred, solarised = (
        draws[column] < probability
        for column, probability in ((0, view.jitter), (5, view.grey), (6, view.blur), (8, view.solarise))
    )
    strength = (view.brightness, view.contrast, view.saturation)
    factors = [_factors(draw, size, jittered) for draw, size in zip(draws[1:4], strength)]
    levels = contrast(brightness(levels_BCHW, factors[0]), factors[1])
    if levels.shape[1] == 3:
        levels = saturation(levels, factors[2])
        levels = _where(jittered, levels, lambda some, at: turn_hue(some, (2 * draws[4][at] - 1) * view.hue))
        levels = _where(turned_grey, levels, lambda some, at: np.repeat(_grey(some), 3, axis=1))
    low, high = (sigma * min(view.size) / _BLUR_SIDE for sigma in view.blur_sigma)
    levels = _where(blurred, levels, lambda some, at: blur(some, low + draws[7][at] * (high - low), high))
    return _where(solarised, levels, lambda some, at: solarise(some))


def _factors(uniform_B: Array, size: float, chosen_B: Array) -> Array:
    return np.where(chosen_B, 1 + size * (2 * uniform_B - 1), 1.0).astype(np.float32)


def _where(chosen_B: Array, levels_BCHW: Array, change: Callable[[Array, Array], Array]) -> Array:
    """The samples chosen are changed, the others stay as they are."""
    if not chosen_B.any():
        return levels_BCHW
    out = levels_BCHW.copy()
    out[chosen_B] = change(levels_BCHW[chosen_B], chosen_B)
    return out


def brightness(levels_BCHW: Array, factor_B: Array) -> Array:
    """A blend with black."""
    return np.clip(levels_BCHW * factor_B[:, None, None, None], 0, 1)


def contrast(levels_BCHW: Array, factor_B: Array) -> Array:
    """A blend with the mean level of the image's grey version."""
    # Summed in double precision along one image: what is left of the order of summation is below float32.
    grey = _grey(levels_BCHW).reshape(len(levels_BCHW), -1).astype(np.float64)
    return _blend(levels_BCHW, grey.mean(axis=1).astype(np.float32)[:, None, None, None], factor_B)


def saturation(levels_BCHW: Array, factor_B: Array) -> Array:
    """A blend with the image's grey version."""
    return _blend(levels_BCHW, _grey(levels_BCHW), factor_B)


def turn_hue(levels_B3HW: Array, turn_B: Array) -> Array:
    """The hue of every pixel turned by a share of the circle; its value and saturation stay.

    A pixel is its value minus its chroma times one trapezoid of the hue for each channel.
    """
    red, green, blue = levels_B3HW[:, 0], levels_B3HW[:, 1], levels_B3HW[:, 2]
    value, chroma = levels_B3HW.max(axis=1), np.ptp(levels_B3HW, axis=1)
    safe = np.where(chroma > 0, chroma, np.float32(1))
    sixths = np.where(
        value == red,
        (green - blue) / safe,
        np.where(value == green, 2 + (blue - red) / safe, 4 + (red - green) / safe),
    )
    sixths = sixths + np.float32(6) * turn_B.astype(np.float32)[:, None, None]
    out = np.empty_like(levels_B3HW)
    for channel, offset in enumerate((5, 3, 1)):
        place = np.mod(offset + sixths, np.float32(6))
        out[:, channel] = value - chroma * np.clip(np.minimum(place, 4 - place), 0, 1)
    return out


def blur(levels_BCHW: Array, sigma_B: Array, largest: float) -> Array:
    """A Gaussian of its own width for every image, rows then columns; the border repeats its outermost pixels.

    largest: the widest that any image of any batch may have, so that all have the same taps.
    """
    radius = max(1, math.ceil(3 * largest))
    distance_K = np.arange(-radius, radius + 1)
    weights_BK = np.exp(-0.5 * (distance_K / sigma_B[:, None]) ** 2)
    weights_BK = (weights_BK / weights_BK.sum(axis=1, keepdims=True)).astype(np.float32)
    for axis in (2, 3):
        length = levels_BCHW.shape[axis]
        mixed = np.zeros_like(levels_BCHW)
        for weight_B, distance in zip(weights_BK.T, distance_K):
            places = np.clip(np.arange(length) + distance, 0, length - 1)
            mixed += weight_B[:, None, None, None] * levels_BCHW.take(places, axis=axis)
        levels_BCHW = mixed
    return np.clip(levels_BCHW, 0, 1)


def solarise(levels_BCHW: Array) -> Array:
    """Levels of one half and more are inverted."""
    return np.where(levels_BCHW >= 0.5, 1 - levels_BCHW, levels_BCHW)


def _blend(levels_BCHW: Array, other: Array, factor_B: Array) -> Array:
    return np.clip(other + factor_B[:, None, None, None] * (levels_BCHW - other), 0, 1)


def _grey(levels_BCHW: Array) -> Array:
    """(B, 1, H, W): luma with three channels, the mean of the channels otherwise."""
    if levels_BCHW.shape[1] != 3:
        return levels_BCHW.mean(axis=1, keepdims=True)
    red, green, blue = (weight * levels_BCHW[:, c : c + 1] for c, weight in enumerate(_LUMA))
    return red + green + blue
