"""How are TIFF files beyond Pillow and DICOM files read? (The `science` extra: tifffile and pydicom.)

Pages or samples of a TIFF are its channels. Of a DICOM series the first frame counts; its stored bits fill the 16-bit
range, so that equal brightness is an equal number whatever the scanner's depth.
"""

from __future__ import annotations

import io
import zlib
from typing import Any

import numpy as np
from PIL import TiffImagePlugin

from echoless.config.extras import install_command
from echoless.data.decode import Undecodable, check_size
from echoless.data.resample import Array

_MOST_CHANNELS = 64
_BITS_PER_SAMPLE, _COMPRESSION, _SAMPLES_PER_PIXEL = 258, 259, 277
_DEFLATE = (8, 32946)


def needs_tifffile(data: bytes) -> bool:
    """Whether Pillow would refuse this TIFF or lose some of it; decided by its header, not by what is installed."""
    try:
        with TiffImagePlugin.TiffImageFile(io.BytesIO(data)) as image:
            bits = image.tag_v2.get(_BITS_PER_SAMPLE, (1,))
            samples = image.tag_v2.get(_SAMPLES_PER_PIXEL, 1)
            return image.n_frames > 1 or samples not in (1, 3, 4) or (max(bits) > 8 and samples > 1)
    # Pillow knows no mode for it.
    except Exception:
        return True


def decode_tiff(data: bytes, pixel_limit: int) -> Array:
    """The first series of the file as CHW: every axis that is not Y or X is a channel."""
    tifffile = _optional("tifffile")
    with tifffile.TiffFile(io.BytesIO(data)) as file:
        series = file.series[0]
        axes, shape = series.axes, series.shape
        if "Y" not in axes or "X" not in axes:
            raise Undecodable(f"a TIFF with axes {axes} is not an image")
        height, width = shape[axes.index("Y")], shape[axes.index("X")]
        check_size(width, height, pixel_limit)
        channels = int(np.prod(shape)) // max(height * width, 1)
        if channels > _MOST_CHANNELS:
            raise Undecodable(f"{channels} channels or pages; allowed: up to {_MOST_CHANNELS}")
        check_size(width, height * channels, 4 * pixel_limit)
        for page in series.pages:
            _refuse_inflating_segments(file, page)
        stack = np.moveaxis(series.asarray(), (axes.index("Y"), axes.index("X")), (-2, -1))
    return _integers(stack.reshape(channels, height, width))


def _refuse_inflating_segments(file: Any, page: Any) -> None:
    """A deflated strip or tile may hold no more than its share of the announced size."""
    if page is None or int(page.compression) not in _DEFLATE:
        return
    allowed = int(np.prod(page.chunks)) * page.dtype.itemsize
    for offset, length in zip(page.dataoffsets, page.databytecounts):
        file.filehandle.seek(offset)
        inflater = zlib.decompressobj()
        inflater.decompress(file.filehandle.read(length), allowed)
        if inflater.unconsumed_tail and inflater.decompress(inflater.unconsumed_tail, 1):
            raise Undecodable("a compressed strip is larger than the image announces")


def _integers(pixels_CHW: Array) -> Array:
    if pixels_CHW.dtype == bool:
        return pixels_CHW.astype(np.uint8) * np.uint8(255)
    if pixels_CHW.dtype not in (np.uint8, np.uint16):
        raise Undecodable(f"{pixels_CHW.dtype} pixels; allowed: uint8, uint16")
    return np.ascontiguousarray(pixels_CHW.astype(pixels_CHW.dtype.newbyteorder("=")))


def decode_dicom(data: bytes, pixel_limit: int) -> Array:
    """The first frame of a DICOM file as CHW."""
    pydicom = _optional("pydicom")
    header = pydicom.dcmread(io.BytesIO(data), stop_before_pixels=True)
    if "Rows" not in header or "Columns" not in header:
        raise Undecodable("a DICOM file without an image")
    check_size(int(header.Columns), int(header.Rows), pixel_limit)
    frames = int(header.get("NumberOfFrames", 1) or 1)
    check_size(int(header.Columns), int(header.Rows) * frames, 4 * pixel_limit)
    file = pydicom.dcmread(io.BytesIO(data))
    frame = file.pixel_array[0] if frames > 1 else file.pixel_array
    planes = frame[None] if frame.ndim == 2 else np.moveaxis(frame, -1, 0)
    return _full_range(planes, header)


def _full_range(planes_CHW: Array, header: Any) -> Array:
    stored = int(header.BitsStored)
    levels = planes_CHW.astype(np.int64)
    if int(header.PixelRepresentation) == 1:
        levels += 1 << (stored - 1)
    levels = np.clip(levels, 0, (1 << stored) - 1)
    if header.PhotometricInterpretation == "MONOCHROME1":
        levels = (1 << stored) - 1 - levels
    bits = 8 if stored <= 8 else 16
    if stored > 16:
        raise Undecodable(f"{stored} bits stored; allowed: up to 16")
    return (levels << (bits - stored)).astype(np.uint8 if bits == 8 else np.uint16)


def _optional(name: str) -> Any:
    try:
        return __import__(name)
    # A broken installation raises other things than ImportError.
    except Exception:
        raise Undecodable(f"this file needs {name}: {install_command(extra='science')}") from None
