"""How is a box of an image brought to another size, antialiased, with the same bits in every batch?

Bilinear resampling is two small matrix products, rows then columns, with a triangle filter that widens where it
shrinks (Pillow's definition; the filter may look past the box, never past the image). Matrix products round
differently for other batch sizes, thread counts and processors, unless nothing needs rounding: weights are multiples of
1/4096 that sum to one, and the values between the two products are multiples of 1/16. Every sum then fits the mantissa
(8 + 4 + 12 = 24 bits of float32 for 8-bit pixels; 32 of 53 bits of float64 for 16-bit ones), so every order of
summation gives the same number. The price is an error of a fraction of one grey level.

Letters: B batch, C channels, H W pixels, O output positions, I input positions.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_WEIGHT_UNITS = 4096
_LEVEL_UNITS = 16
_CHUNK = 64  # samples whose intermediates stay in a core's cache
_SERIAL_PRODUCT = 2**18  # multiplications up to which BLAS keeps a product on the calling thread
_BAND = 16  # output positions per product of a large image, which skips the zeros of its weights


class Boxes(NamedTuple):
    """One box per sample, in pixels of its image; fractions allowed. flip: mirrored left to right afterwards."""

    top_B: Array
    left_B: Array
    height_B: Array
    width_B: Array
    flip_B: Array

    def take(self, positions: Array) -> Boxes:
        return Boxes(*(field[positions] for field in self))


def resample(pixels: Array | list[Array], boxes: Boxes, size: tuple[int, int]) -> Array:
    """Boxes of CHW images as float BCHW in grey levels: float32, or float64 for 16-bit pixels.

    The images come stacked, or as a list when their sizes differ; channels and type are the same for all.
    """
    out = np.empty((len(pixels), pixels[0].shape[0], *size), dtype=_working_type(pixels[0].dtype))
    for positions in _groups_of_equal_shape(pixels):
        shape_CHW = pixels[positions[0]].shape
        small = shape_CHW[0] * shape_CHW[1] * shape_CHW[2] * size[0] <= _SERIAL_PRODUCT
        product, chunk = (_dense, _CHUNK) if small else (_banded, 1)
        for start in range(0, len(positions), chunk):
            where = positions[start : start + chunk]
            group = pixels[where] if isinstance(pixels, np.ndarray) else np.stack([pixels[i] for i in where])
            out[where] = product(group, *_row_and_column_weights(boxes.take(where), shape_CHW, size, out.dtype))
    return out


def resize(image_CHW: Array, size: tuple[int, int]) -> Array:
    """The whole image at another size, in its own type."""
    height, width = image_CHW.shape[1:]
    whole = Boxes(*(np.array([value]) for value in (0, 0, height, width, False)))
    return np.rint(resample(image_CHW[None], whole, size)[0]).astype(image_CHW.dtype)


def _working_type(pixel_type: np.dtype) -> np.dtype:
    return np.dtype(np.float32 if pixel_type == np.uint8 else np.float64)


def _row_and_column_weights(
    boxes: Boxes, shape_CHW: tuple[int, ...], size: tuple[int, int], dtype: np.dtype
) -> tuple[Array, Array]:
    rows_BOH = _weights(boxes.top_B, boxes.height_B, shape_CHW[1], size[0], dtype)
    columns_BOW = _weights(boxes.left_B, boxes.width_B, shape_CHW[2], size[1], dtype)
    columns_BOW[boxes.flip_B] = columns_BOW[boxes.flip_B, ::-1]
    return rows_BOH, columns_BOW


def _groups_of_equal_shape(pixels: Array | list[Array]) -> list[Array]:
    if isinstance(pixels, np.ndarray):
        return [np.arange(len(pixels))]
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, image in enumerate(pixels):
        groups.setdefault(image.shape, []).append(position)
    return [np.array(positions) for positions in groups.values()]


def _weights(start_B: Array, length_B: Array, inputs: int, outputs: int, dtype: np.dtype) -> Array:
    """weights_BOI: how much each input position gives to each output position, in units of 1/4096."""
    step_B1 = (length_B / outputs)[:, None]
    centre_BO = start_B[:, None] + (np.arange(outputs) + 0.5) * step_B1
    slope_B11 = (1 / np.maximum(step_B1, 1))[:, :, None].astype(dtype)
    distance = (np.arange(inputs) + 0.5).astype(dtype) - centre_BO.astype(dtype)[:, :, None]
    weights = np.abs(distance, out=distance)
    weights *= -slope_B11
    weights += 1
    np.maximum(weights, 0, out=weights)
    weights *= _WEIGHT_UNITS / weights.sum(axis=2, keepdims=True)
    np.rint(weights, out=weights)
    # What rounding lost goes to the pixel under the centre, which has the largest weight.
    nearest_BO1 = np.clip(centre_BO.astype(np.int64), 0, inputs - 1)[:, :, None]
    lost_BO1 = _WEIGHT_UNITS - weights.sum(axis=2, keepdims=True)
    np.put_along_axis(weights, nearest_BO1, np.take_along_axis(weights, nearest_BO1, axis=2) + lost_BO1, axis=2)
    return weights


def _dense(pixels_BCHW: Array, rows_BOH: Array, columns_BOW: Array) -> Array:
    count, channels, height, width = pixels_BCHW.shape
    # Rows outermost, so that one product per sample serves all channels.
    pixels = pixels_BCHW.transpose(0, 2, 1, 3).astype(rows_BOH.dtype, order="C").reshape(count, height, -1)
    tall = _to_sixteenths(np.matmul(rows_BOH, pixels)).reshape(count, -1, width)
    wide = np.matmul(tall, columns_BOW.transpose(0, 2, 1)).reshape(count, rows_BOH.shape[1], channels, -1)
    wide *= 1 / (_WEIGHT_UNITS * _LEVEL_UNITS)
    return wide.transpose(0, 2, 1, 3)


def _banded(pixels_BCHW: Array, rows_BOH: Array, columns_BOW: Array) -> Array:
    out = np.empty((*pixels_BCHW.shape[:2], rows_BOH.shape[1], columns_BOW.shape[1]), dtype=rows_BOH.dtype)
    for image, rows, columns, target in zip(pixels_BCHW, rows_BOH, columns_BOW, out):
        tall = _to_sixteenths(_contract(rows, image))
        wide = _contract(columns, tall.transpose(0, 2, 1)).transpose(0, 2, 1)
        np.multiply(wide, 1 / (_WEIGHT_UNITS * _LEVEL_UNITS), out=target)
    return out


def _contract(weights_OI: Array, pixels_CIX: Array) -> Array:
    out = np.empty((len(pixels_CIX), len(weights_OI), pixels_CIX.shape[2]), dtype=weights_OI.dtype)
    used = weights_OI != 0
    first_O, last_O = used.argmax(axis=1), used.shape[1] - used[:, ::-1].argmax(axis=1)
    for start in range(0, len(weights_OI), _BAND):
        band = slice(start, start + _BAND)
        reach = slice(first_O[band].min(), last_O[band].max())
        pixels = pixels_CIX[:, reach].astype(out.dtype, copy=False)
        np.matmul(weights_OI[band, reach], pixels, out=out[:, band])
    return out


def _to_sixteenths(values: Array) -> Array:
    values *= _LEVEL_UNITS / _WEIGHT_UNITS
    return np.rint(values, out=values)
