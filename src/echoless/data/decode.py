"""How do the bytes of one file become pixels (uint8 or uint16, CHW), or a reason why not?

A file that can be read is not bad. Palette, CMYK, YCbCr and the like become RGB; of an animation the first frame
counts; a broken EXIF block is ignored; the extension is never believed. What cannot be read (empty, truncated, not an
image, larger than the pixel limit, floating point) raises `Undecodable`. The size is read from the header before any
pixel is decoded, and the limit is an argument, never Pillow's global one. TIFF with several pages, more than four
samples or more than 8 bits per colour, and DICOM, go through the `science` extra.
"""

from __future__ import annotations

import contextlib
import io
import struct
import threading
import warnings
from dataclasses import dataclass

import numpy as np
from PIL import Image, ImageOps

from echoless.data.jpeg import decode_plain_jpeg, plain_jpeg_header
from echoless.data.resample import Array, resize

PIXEL_LIMIT = 50_000_000
SHORT_SIDE = 256

# Formats read in this process by Pillow itself: EPS, for one, would start another program.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "TGA")
_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_GREY_MODES = {"1", "L", "LA", "La"}
_WARNING_FILTERS = threading.Lock()
_WIDE_MODES = {"I;16", "I;16B", "I;16L", "I;16N", "I"}


class Undecodable(Exception):
    """The file is not a usable image; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """Everything besides the bytes that decides the pixels. None: as the file has it."""

    channels: int | None = None
    bits: int | None = None
    short_side: int = SHORT_SIDE
    pixel_limit: int = PIXEL_LIMIT


def decode(data: bytes, settings: DecodeSettings) -> Array:
    """Pixels of the channel count and depth asked for, with a short side of at most `settings.short_side`."""
    if not data:
        raise Undecodable("the file is empty")
    try:
        pixels = _decode_any(data, settings)
    # Raised only where the user made warnings errors; Pillow's are about metadata, and the pixels may be fine.
    except Warning:
        return _decode_without_warnings(data, settings)
    except Undecodable:
        raise
    except MemoryError:
        raise Undecodable("decoding needs more memory than there is") from None
    # Decoders raise what they like on hostile bytes (OSError, SyntaxError, struct.error, IndexError, ...).
    except Exception as error:
        raise Undecodable(_sentence(error)) from None
    return to_bits(to_channels(pixels, settings.channels), settings.bits)


def pixels_of(image: Image.Image, settings: DecodeSettings) -> Array:
    """Pixels of a picture that Pillow holds, equal to `decode` of its file.

    A large JPEG that Pillow has opened and not yet decoded is read from its file again: `decode` lets libjpeg do it at
    a reduced size, which `Image.load` does not.
    """
    large = min(image.size) >= 2 * settings.short_side
    file = getattr(image, "fp", None)
    if large and image.format == "JPEG" and file is not None and getattr(image, "tile", None):
        place = file.tell()
        file.seek(0)
        data = file.read()
        file.seek(place)
        return decode(data, settings)
    check_size(*image.size, settings.pixel_limit)
    return to_bits(to_channels(_pixels(_upright(image), settings.short_side), settings.channels), settings.bits)


def _decode_without_warnings(data: bytes, settings: DecodeSettings) -> Array:
    # The filters belong to the whole process: one thread at a time.
    with _WARNING_FILTERS, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return decode(data, settings)


def _decode_any(data: bytes, settings: DecodeSettings) -> Array:
    if data[128:132] != b"DICM" and data[:4] not in _TIFF_MAGIC:
        return _decode_with_pillow(data, settings)
    from echoless.data import science

    if data[128:132] == b"DICM":
        return shrink(science.decode_dicom(data, settings.pixel_limit), settings.short_side)
    if science.needs_tifffile(data):
        return shrink(science.decode_tiff(data, settings.pixel_limit), settings.short_side)
    return _decode_with_pillow(data, settings)


def _decode_with_pillow(data: bytes, settings: DecodeSettings) -> Array:
    plain = _decode_plain_jpeg(data, settings)
    if plain is not None:
        return plain
    check_size(*_webp_size(data), settings.pixel_limit)
    with _open(data) as image:
        check_size(*image.size, settings.pixel_limit)
        if image.format == "JPEG":
            image.draft(None, _covering(image.size, settings.short_side))
        image.load()
        return _pixels(_upright(image), settings.short_side)


def _decode_plain_jpeg(data: bytes, settings: DecodeSettings) -> Array | None:
    header = plain_jpeg_header(data)
    # From twice the short side on, opening the file properly pays: libjpeg then decodes at half the size or less.
    if header is None or min(header[1]) >= 2 * settings.short_side:
        return None
    check_size(*header[1], settings.pixel_limit)
    pixels = decode_plain_jpeg(data, *header)
    if pixels is None or min(header[1]) <= settings.short_side:
        return None if pixels is None else _channels_first(pixels)
    return _pixels(Image.fromarray(pixels.squeeze()), settings.short_side)


def _pixels(image: Image.Image, short_side: int) -> Array:
    if image.mode in _WIDE_MODES:
        return shrink(_wide_grey(image), short_side)
    eight_bit = _to_eight_bit_mode(image)
    target = _covering(eight_bit.size, short_side)
    if target != eight_bit.size:
        eight_bit = eight_bit.resize(target, Image.Resampling.BILINEAR)
    return _channels_first(np.asarray(eight_bit))


def _channels_first(pixels: Array) -> Array:
    return pixels[None].copy() if pixels.ndim == 2 else np.ascontiguousarray(pixels.transpose(2, 0, 1))


def _open(data: bytes) -> Image.Image:
    """`Image.open` for our formats, without its warning about sizes: ours is checked by the caller."""
    Image.init()
    for name in _FORMATS:
        factory, accept = Image.OPEN.get(name, (None, None))
        if factory is None or (accept and accept(data[:16]) is not True):
            continue
        with contextlib.suppress(SyntaxError, IndexError, TypeError, struct.error):
            return factory(io.BytesIO(data), "")
    raise Undecodable("not an image of a known format")


def check_size(width: int, height: int, limit: int) -> None:
    """Refuse what the header announces, before anything of that size is allocated."""
    if width * height > limit:
        raise Undecodable(f"{width} x {height} pixels is more than the limit of {limit:,}")


def _webp_size(data: bytes) -> tuple[int, int]:
    """Canvas of an extended WebP (0, 0 for anything else): Pillow's decoder allocates it on opening."""
    if data[:4] != b"RIFF" or data[8:16] != b"WEBPVP8X" or len(data) < 30:
        return 0, 0
    return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1


def _upright(image: Image.Image) -> Image.Image:
    # A file whose EXIF block is broken shows its pixels all the same.
    with contextlib.suppress(Exception):
        return ImageOps.exif_transpose(image)
    return image


def _covering(size: tuple[int, int], short_side: int) -> tuple[int, int]:
    """The size with this short side and the same proportions, or the size itself if it is smaller already."""
    short = min(size)
    if short <= short_side:
        return size
    return max(round(size[0] * short_side / short), 1), max(round(size[1] * short_side / short), 1)


def _to_eight_bit_mode(image: Image.Image) -> Image.Image:
    if image.mode in ("L", "RGB", "RGBA"):
        return image
    if image.mode in _GREY_MODES:
        return image.convert("L")
    if image.mode == "F":
        raise Undecodable("floating-point pixels; allowed: 8 or 16 bit")
    # Through RGBA where a palette carries transparency, which RGB cannot hold.
    return image.convert("RGBA").convert("RGB") if image.mode in ("P", "PA") else image.convert("RGB")


def _wide_grey(image: Image.Image) -> Array:
    levels = np.asarray(image)
    if levels.size and (levels.min() < 0 or levels.max() > 65535):
        raise Undecodable("pixels of more than 16 bits; allowed: 8 or 16 bit")
    return levels.astype(np.uint16)[None]


def shrink(pixels_CHW: Array, short_side: int) -> Array:
    """Resized, antialiased, to this short side if the image is larger."""
    width, height = _covering((pixels_CHW.shape[2], pixels_CHW.shape[1]), short_side)
    return pixels_CHW if (height, width) == pixels_CHW.shape[1:] else resize(pixels_CHW, (height, width))


def to_channels(pixels_CHW: Array, channels: int | None) -> Array:
    """Grey, RGB and RGBA become one another; other channel counts only themselves. Alpha is dropped, or opaque."""
    have = len(pixels_CHW)
    if channels is None or have == channels:
        return pixels_CHW
    if {have, channels} - {1, 3, 4}:
        raise Undecodable(f"{have} channels, but the set has {channels}")
    if channels == 1:
        red, green, blue = pixels_CHW[:3].astype(np.uint32)
        return ((299 * red + 587 * green + 114 * blue + 500) // 1000).astype(pixels_CHW.dtype)[None]
    colour = np.repeat(pixels_CHW, 3, axis=0) if have == 1 else pixels_CHW[:3]
    if channels == 3:
        return np.ascontiguousarray(colour)
    opaque = np.full_like(colour[:1], np.iinfo(colour.dtype).max)
    return np.concatenate([colour, opaque])


def to_bits(pixels_CHW: Array, bits: int | None) -> Array:
    """8 and 16 bit become one another so that white stays white."""
    if bits is None or pixels_CHW.dtype.itemsize * 8 == bits:
        return pixels_CHW
    if bits == 16:
        return pixels_CHW.astype(np.uint16) * np.uint16(257)
    return ((pixels_CHW.astype(np.uint32) + 128) // 257).astype(np.uint8)


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[:200] if text else type(error).__name__
