"""How is an ordinary JPEG opened without parsing what we do not need?

For a small image, reading the header in Python costs more than decoding the pixels. Most JPEGs need their size and
their number of components and nothing else; those go to the decoder at once: simplejpeg, which is several times as fast
as Pillow for small images, lets other threads run, and gives the same pixels (both are libjpeg-turbo). All other files
(EXIF, CMYK, 12 bit, anything unexpected or damaged) take the general way.
"""

from __future__ import annotations

import struct
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import numpy as np
import PIL
from numpy.typing import NDArray
from PIL import Image

try:
    import simplejpeg
except Exception:  # not installed, or not for this machine: Pillow serves
    simplejpeg = None

_FRAME_MARKERS = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive: what the decoder knows
# End, scan and the block where EXIF lives; then what has no length, so that libjpeg would read on elsewhere than we.
_STOP_MARKERS = frozenset({0xD9, 0xDA, 0xE1, 0x00, 0x01, 0xFF, *range(0xD0, 0xD9)})
_COLOUR_SPACES = {"L": "GRAY", "RGB": "RGB"}
_MODES = {1: "L", 3: "RGB"}  # by the number of components
_SEGMENT = struct.Struct(">BBH")  # 0xFF, the marker, the length from here on
_FRAME = struct.Struct(">BHHB")  # bits, height, width, components


@cache
def decoder_versions() -> tuple[str, ...]:
    """What decides the pixels besides the file: another version may decode to others, or what could not be decoded."""
    optional = [
        f"{name} {version(name)}" for name in ("simplejpeg", "tifffile", "pydicom", "pillow_heif") if find_spec(name)
    ]
    return (f"Pillow {PIL.__version__}", *optional)


def plain_jpeg_header(data: bytes) -> tuple[str, tuple[int, int]] | None:
    """Mode and (width, height) of an 8-bit grey or colour JPEG without EXIF; None for anything else."""
    if data[:2] != b"\xff\xd8":
        return None
    position = 2
    while position + 10 <= len(data):
        begin, marker, length = _SEGMENT.unpack_from(data, position)
        if begin != 0xFF or marker in _STOP_MARKERS:
            return None
        if marker in _FRAME_MARKERS:
            bits, height, width, components = _FRAME.unpack_from(data, position + 4)
            mode = _MODES.get(components)
            return (mode, (width, height)) if mode and bits == 8 and width and height else None
        position += 2 + length
    return None


def decode_plain_jpeg(data: bytes, mode: str, size: tuple[int, int]) -> NDArray[Any] | None:
    """HWC or HW pixels, or None if the data is not what the header says: the general way then finds the reason."""
    try:
        if simplejpeg is None:
            return np.asarray(Image.frombytes(mode, size, data, "jpeg", (mode, "")))
        # Room for what the header promised and not a byte more: a file that says two things is refused.
        room = np.empty((size[1], size[0], len(mode)), dtype=np.uint8)
        pixels = simplejpeg.decode_jpeg(data, _COLOUR_SPACES[mode], fastdct=False, fastupsample=False, buffer=room)
    except (ValueError, OSError):
        return None
    return pixels if pixels.shape == room.shape else None
