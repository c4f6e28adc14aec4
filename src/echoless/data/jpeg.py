"""How is an ordinary JPEG opened without parsing what we do not need?

For a small image, reading the header in Python costs more than decoding the pixels. Most JPEGs need their size and
their number of components and nothing else; those go to the decoder at once. All others (EXIF, CMYK, 12 bit, anything
unexpected) take the general way.
"""

from __future__ import annotations

from PIL import Image

_FRAME_MARKERS = (0xC0, 0xC1, 0xC2)  # baseline, extended and progressive: what the decoder knows
_STOP_MARKERS = (0xD9, 0xDA, 0xE1)  # end, scan, and the block where EXIF lives


def plain_jpeg_header(data: bytes) -> tuple[str, tuple[int, int]] | None:
    """Mode and (width, height) of an 8-bit grey or colour JPEG without EXIF; None for anything else."""
    if data[:2] != b"\xff\xd8":
        return None
    position = 2
    while position + 10 <= len(data) and data[position] == 0xFF:
        marker = data[position + 1]
        if marker in _STOP_MARKERS:
            return None
        if marker in _FRAME_MARKERS:
            bits, components = data[position + 4], data[position + 9]
            height = int.from_bytes(data[position + 5 : position + 7], "big")
            width = int.from_bytes(data[position + 7 : position + 9], "big")
            mode = {1: "L", 3: "RGB"}.get(components)
            return (mode, (width, height)) if mode and bits == 8 and width and height else None
        position += 2 + int.from_bytes(data[position + 2 : position + 4], "big")
    return None


def decode_plain_jpeg(data: bytes, mode: str, size: tuple[int, int]) -> Image.Image | None:
    """The image, or None if the data is not what the header says: the general way then finds the reason."""
    try:
        return Image.frombytes(mode, size, data, "jpeg", (mode, ""))
    except (ValueError, OSError):
        return None
