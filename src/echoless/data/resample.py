"""How is a box of an image brought to another size, antialiased, with the same bits in every batch?

Bilinear resampling is two small matrix products, rows then columns, with a triangle filter that widens where it
shrinks (Pillow's definition; the filter may look past the box, never past the image). Matrix products round
differently for other batch sizes, thread counts and processors, unless nothing needs rounding: weights are multiples of
1/4096 that sum to one, and the values between the two products are multiples of 1/16. Every sum then fits the mantissa
(8 + 4 + 12 = 24 bits of float32 for 8-bit pixels; 32 of 53 bits of float64 for 16-bit ones), so every order of
summation gives the same number. The price is an error of a fraction of one grey level.

Letters: B batch, C channels, H W pixels, O output positions (of either axis), I input positions, T taps of the filter.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

_WEIGHT_UNITS = 4096
_LEVEL_UNITS = 16
_FINE = 2**30
_CHUNK = 64  # samples whose intermediates stay in a core's cache
_SERIAL_PRODUCT = 2**18  # multiplications up to which BLAS keeps a product on the calling thread
_BAND = 16  # output positions per product of a large image, which skips the zeros of its weights
_LARGEST_TABLE = 2**24  # bytes of weights that are kept for one pair of input and output length


class Boxes(NamedTuple):
    """One box per sample, in pixels of its image; fractions allowed. flip: mirrored left to right afterwards."""

    top_B: Array
    left_B: Array
    height_B: Array
    width_B: Array
    flip_B: Array

    def take(self, where: Array | slice) -> Boxes:
        return Boxes(*(field[where] for field in self))


def resample(
    pixels: Array | list[Array],
    boxes: Boxes,
    size: tuple[int, int],
    gain_C: Array | float = 1.0,
    shift_C: Array | float = 0.0,
) -> Array:
    """Boxes of CHW images as float BCHW: grey levels times gain minus shift; float64 for 16-bit pixels, else float32.

    The images come stacked, or as a list when their sizes differ; channels and type are the same for all.
    """
    kind = _working_type(pixels[0].dtype)
    out = np.empty((len(pixels), pixels[0].shape[0], *size), dtype=kind)
    # A power of two: folding it into the gain rounds nothing.
    gain = np.asarray(gain_C / (_WEIGHT_UNITS * _LEVEL_UNITS), dtype=kind).reshape(-1, 1, 1)
    shift = np.asarray(shift_C, dtype=kind).reshape(-1, 1, 1)
    for where in _groups_of_equal_shape(pixels):
        group = pixels[where] if isinstance(pixels, np.ndarray) else np.stack([pixels[i] for i in where])
        for start in range(0, len(group), _CHUNK):
            part = slice(start, start + _CHUNK)
            target = part if isinstance(where, slice) else where[part]
            # A view where the target is a plain slice, which is the common case; else a copy to be put back.
            values = out[target]
            _in_units(group[part], boxes.take(target), values, whole_set=isinstance(pixels, np.ndarray))
            values *= gain
            values -= shift
            if not isinstance(target, slice):
                out[target] = values
    return out


def resize(image_CHW: Array, size: tuple[int, int]) -> Array:
    """The whole image at another size, in its own type."""
    height, width = image_CHW.shape[1:]
    whole = Boxes(*(np.array([value]) for value in (0, 0, height, width, False)))
    return np.rint(resample(image_CHW[None], whole, size)[0]).astype(image_CHW.dtype)


def _working_type(pixel_type: np.dtype) -> np.dtype:
    return np.dtype(np.float32 if pixel_type == np.uint8 else np.float64)


def _groups_of_equal_shape(pixels: Array | list[Array]) -> list[Any]:
    if isinstance(pixels, np.ndarray):
        return [slice(None)]
    groups: dict[tuple[int, ...], list[int]] = {}
    for position, image in enumerate(pixels):
        groups.setdefault(image.shape, []).append(position)
    return [np.array(positions) for positions in groups.values()]


def _in_units(pixels_BCHW: Array, boxes: Boxes, out_BCOO: Array, whole_set: bool) -> None:
    """Fill `out` with the resampled images, exactly, in units of 1/65536 of a grey level."""
    vertical = boxes.top_B, boxes.height_B, pixels_BCHW.shape[2], out_BCOO.shape[2], out_BCOO.dtype
    horizontal = boxes.left_B, boxes.width_B, pixels_BCHW.shape[3], out_BCOO.shape[3], out_BCOO.dtype
    flip_B = boxes.flip_B.astype(bool)
    if (corner := _common_corner(boxes, out_BCOO.shape[2:])) is not None:
        top, left = corner
        crop = pixels_BCHW[:, :, top : top + out_BCOO.shape[2], left : left + out_BCOO.shape[3]]
        np.multiply(crop, out_BCOO.dtype.type(_WEIGHT_UNITS * _LEVEL_UNITS), out=out_BCOO)
    elif pixels_BCHW[0].size * out_BCOO.shape[2] <= _SERIAL_PRODUCT:
        weights = _looked_up if whole_set else _computed
        _dense(pixels_BCHW, weights(*vertical, np.zeros_like(flip_B)), weights(*horizontal, flip_B), out_BCOO)
    else:
        _banded(pixels_BCHW, _taps(*vertical), _mirrored(_taps(*horizontal), flip_B), out_BCOO)


def _common_corner(boxes: Boxes, size: tuple[int, ...]) -> tuple[int, int] | None:
    """Where the boxes begin, if all are one box of whole pixels that keeps its size: nothing is to be resampled."""
    first = [field[0] for field in boxes]
    if any((field != value).any() for field, value in zip(boxes, first)) or first[4]:
        return None
    top, left, *sides = first[:4]
    whole = float(top).is_integer() and float(left).is_integer()
    return (int(top), int(left)) if whole and tuple(sides) == size else None


class _Taps(NamedTuple):
    """What each output position is made of: `weights_BOT` (units of 1/4096) for the inputs from `first_BO` on."""

    first_BO: Array  # may begin before the image or end after it, where the weights are zero
    weights_BOT: Array


def _taps(start_B: Array, length_B: Array, inputs: int, outputs: int, kind: np.dtype) -> _Taps:
    step_B1 = (length_B / outputs)[:, None]
    support_B1 = np.maximum(step_B1, 1)
    centre_BO = start_B[:, None] + (np.arange(outputs) + 0.5) * step_B1
    first_BO = np.floor(centre_BO - support_B1 + 0.5).astype(np.int64)
    taps = int(np.ceil(2 * support_B1.max())) + 1
    place_BOT = first_BO[:, :, None] + np.arange(taps)
    weights = 1 - np.abs(place_BOT + 0.5 - centre_BO[:, :, None]) / support_B1[:, :, None]
    weights[(weights < 0) | (place_BOT < 0) | (place_BOT >= inputs)] = 0
    # Whole numbers, so that their sums are exact however many taps the widest filter of the batch has.
    sums = np.cumsum(np.rint(weights * _FINE), axis=2)
    # Rounding the running sum instead of each weight keeps the total.
    sums *= _WEIGHT_UNITS / sums[:, :, -1:]
    rounded = np.rint(sums, out=sums).astype(kind)
    rounded[:, :, 1:] -= rounded[:, :, :-1].copy()
    return _Taps(first_BO, rounded)


def _mirrored(taps: _Taps, flip_B: Array) -> _Taps:
    for field in taps:
        field[flip_B] = field[flip_B, ::-1]
    return taps


def _computed(start_B: Array, length_B: Array, inputs: int, outputs: int, kind: np.dtype, flip_B: Array) -> Array:
    """The weights of each sample as a matrix_BOI."""
    return _matrices(_mirrored(_taps(start_B, length_B, inputs, outputs, kind), flip_B), inputs)


def _looked_up(start_B: Array, length_B: Array, inputs: int, outputs: int, kind: np.dtype, flip_B: Array) -> Array:
    """The same from a table, for boxes of whole pixels in small images: they repeat, and weights cost more than use."""
    size = inputs * (inputs + 1) * outputs * inputs * kind.itemsize
    starts, lengths = start_B.astype(np.int64), length_B.astype(np.int64)
    if size > _LARGEST_TABLE or (starts != start_B).any() or (lengths != length_B).any():
        return _computed(start_B, length_B, inputs, outputs, kind, flip_B)
    numbers = starts * inputs - starts * (starts - 1) // 2 + lengths - 1
    return _table(inputs, outputs, kind).take(2 * numbers + flip_B, axis=0)


@lru_cache(maxsize=4)
def _table(inputs: int, outputs: int, kind: np.dtype) -> Array:
    """The matrix_OI of every box of whole pixels (by first pixel, then by length), plain and mirrored in turn."""
    first, last = np.triu_indices(inputs)
    start, length = np.repeat(first, 2), np.repeat(last - first + 1, 2)
    flip = np.arange(len(start)) % 2 == 1
    return np.ascontiguousarray(_computed(start, length, inputs, outputs, kind, flip))


def _matrices(taps: _Taps, inputs: int) -> Array:
    """The taps of each output position in a row of its own: matrix_BOI."""
    count, outputs, width = taps.weights_BOT.shape
    # Room on both sides for taps outside the image, so that no two of a row share a place.
    padded = np.zeros((count, outputs, inputs + 2 * width), dtype=taps.weights_BOT.dtype)
    begin_BO = np.arange(0, padded.size, padded.shape[2]).reshape(count, outputs) + width + taps.first_BO
    padded.reshape(-1)[begin_BO[:, :, None] + np.arange(width)] = taps.weights_BOT
    return padded[:, :, width : width + inputs]


def _dense(pixels_BCHW: Array, rows_BOH: Array, columns_BOW: Array, out_BCOO: Array) -> None:
    tall = _to_sixteenths(np.matmul(rows_BOH[:, None], pixels_BCHW.astype(out_BCOO.dtype, order="C")))
    # All channels of a sample share its columns: one product for them.
    stacked = tall.reshape(len(tall), -1, tall.shape[3])
    np.matmul(stacked, columns_BOW.transpose(0, 2, 1), out=out_BCOO.reshape(len(tall), -1, out_BCOO.shape[3]))


def _banded(pixels_BCHW: Array, rows: _Taps, columns: _Taps, out_BCOO: Array) -> None:
    for i, image in enumerate(pixels_BCHW):
        tall = _to_sixteenths(_contract(_Taps(rows.first_BO[i], rows.weights_BOT[i]), np.ascontiguousarray(image)))
        wide = _contract(_Taps(columns.first_BO[i], columns.weights_BOT[i]), tall.transpose(0, 2, 1))
        out_BCOO[i] = wide.transpose(0, 2, 1)


def _contract(taps: _Taps, pixels_CIX: Array) -> Array:
    """Products of one axis of one image, a band of output positions at a time: a band needs few inputs."""
    first_O, weights_OT = taps
    inputs, width = pixels_CIX.shape[1], weights_OT.shape[1]
    out = np.empty((len(pixels_CIX), len(first_O), pixels_CIX.shape[2]), dtype=weights_OT.dtype)
    for start in range(0, len(first_O), _BAND):
        band = slice(start, start + _BAND)
        low = max(int(first_O[band].min()), 0)
        high = min(int(first_O[band].max()) + width, inputs)
        matrix = _matrices(_Taps(first_O[None, band] - low, weights_OT[None, band]), high - low)[0]
        np.matmul(matrix, pixels_CIX[:, low:high].astype(out.dtype, copy=False), out=out[:, band])
    return out


def _to_sixteenths(values: Array) -> Array:
    values *= _LEVEL_UNITS / _WEIGHT_UNITS
    return np.rint(values, out=values)
