"""How do the pixels of an image lie in memory and in the cache: plane by plane, or pixel by pixel?

Everybody indexes CHW. Small images also lie so, because matrix products need planes (`resample`). A large picture lies
HWC, as a decoder writes it and as torch resizes it fastest, and is seen through exchanged axes: to rearrange it costs a
fifth of decoding it. The order is decided by shape and type alone, so that a file needs no record of it.
"""

from __future__ import annotations

import numpy as np

from echoless.data.resample import Array

LARGEST_PLANAR = 128 * 128 * 4  # values of an image


def channels_first(pixels: Array) -> Array:
    """CHW, of HWC or HW; a large picture is not copied."""
    planes = pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    return planes if _by_pixel(planes.dtype, planes.shape) else np.ascontiguousarray(planes)


def in_order(image_CHW: Array) -> Array:
    """The values as they are stored, one after the other."""
    kept = image_CHW.transpose(1, 2, 0) if _by_pixel(image_CHW.dtype, image_CHW.shape) else image_CHW
    return np.ascontiguousarray(kept)


def from_order(values: Array, shape: tuple[int, int, int]) -> Array:
    """The image, CHW, whose values were stored."""
    if not _by_pixel(values.dtype, shape):
        return values.reshape(shape)
    channels, height, width = shape
    return values.reshape(height, width, channels).transpose(2, 0, 1)


def _by_pixel(kind: np.dtype, shape: tuple[int, ...]) -> bool:
    """Only where torch resizes both orders to the same levels: 8 bits, in colour."""
    channels, height, width = shape
    # Small images are many: the cheapest question comes first.
    return channels * height * width > LARGEST_PLANAR and channels in (3, 4) and kind == np.uint8
