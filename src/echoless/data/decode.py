"""How do the bytes of one file become pixels (uint8 or uint16, CHW), or a reason why not?

A file that can be read is not bad. Palette, CMYK, YCbCr and the like become RGB; of an animation the first frame
counts; a broken EXIF block is ignored; the extension is never believed. What cannot be read (empty, truncated, not an
image, larger than the pixel limit, floating point) raises `Undecodable`. The size is read from the header before any
pixel is decoded, and the limit is an argument, never Pillow's global one. TIFF with several pages, more than four
samples or more than 8 bits per colour, and DICOM, go through the `science` extra, HEIC through the `heic` extra.
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

from echoless.config.counts import counted
from echoless.data.heif import is_heif, open_heif
from echoless.data.jpeg import decode_plain_jpeg, plain_jpeg_header
from echoless.data.layout import channels_first
from echoless.data.resample import Array
from echoless.data.resizing import Fit

PIXEL_LIMIT = 50_000_000
# libjpeg may decode at a half, a quarter or an eighth if what is left is this many times the size that is kept: no crop
# can then tell it from the whole image, resized (tests/data/test_decode.py has the difference).
_DRAFT_GAP = 3

# Formats read in this process by Pillow itself: EPS, for one, would start another program.
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP", "TIFF", "PPM", "JPEG2000", "TGA", "AVIF")
_TIFF_MAGIC = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
_CONVERTED = {1, 3, 4}  # channels: grey, RGB and RGBA
_GREY_MODES = {"1", "L", "LA", "La"}
_WARNING_FILTERS = threading.Lock()
_ORIENTATION, _ON_ITS_SIDE = 0x0112, (5, 6, 7, 8)  # of EXIF: those that exchange height and width
_WIDE_MODES = {"I;16", "I;16B", "I;16L", "I;16N", "I"}


class Undecodable(Exception):
    """The file is not a usable image; the message is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodeSettings:
    """Everything besides the bytes that decides the pixels. None: as the file has it.

    reduction: how an image that is larger is made smaller; nothing is ever enlarged.
    """

    channels: int | None = None
    bits: int | None = None
    reduction: Fit | None = None
    pixel_limit: int = PIXEL_LIMIT


def decode(data: bytes, settings: DecodeSettings) -> Array:
    """Pixels of the channel count and depth asked for, reduced where `settings.reduction` asks for it."""
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
    return _finished(pixels, settings)


def _finished(pixels_CHW: Array, settings: DecodeSettings) -> Array:
    return to_bits(to_channels(reduced(pixels_CHW, settings.reduction), settings.channels), settings.bits)


def reduced(pixels_CHW: Array, fit: Fit | None) -> Array:
    """Resized if the image is large enough for nothing to be enlarged."""
    return pixels_CHW if fit is None or not fit.shrinks(*pixels_CHW.shape[1:]) else fit(pixels_CHW)


def pixels_of(image: Image.Image, settings: DecodeSettings) -> Array:
    """Pixels of a picture that Pillow holds, equal to `decode` of its file.

    A JPEG that Pillow has opened and not yet decoded is read from its file again: `decode` may let libjpeg do it at a
    reduced size, which `Image.load` does not.
    """
    file = getattr(image, "fp", None)
    if image.format == "JPEG" and file is not None and getattr(image, "tile", None):
        place = file.tell()
        file.seek(0)
        data = file.read()
        file.seek(place)
        return decode(data, settings)
    check_size(*image.size, settings.pixel_limit)
    return _finished(_pixels(_upright(image)), settings)


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
        return science.decode_dicom(data, settings.pixel_limit)
    if science.needs_tifffile(data):
        return science.decode_tiff(data, settings.pixel_limit)
    return _decode_with_pillow(data, settings)


def _decode_with_pillow(data: bytes, settings: DecodeSettings) -> Array:
    plain = _decode_plain_jpeg(data, settings)
    if plain is not None:
        return plain
    check_size(*_webp_size(data), settings.pixel_limit)
    with _open(data) as image:
        check_size(*image.size, settings.pixel_limit)
        if image.format == "JPEG":
            image.draft(None, _draft_size(image.size, settings.reduction))
        image.load()
        return _pixels(_upright(image))


def _decode_plain_jpeg(data: bytes, settings: DecodeSettings) -> Array | None:
    header = plain_jpeg_header(data)
    if header is None:
        return None
    fit, size = settings.reduction, header[1]
    # Where libjpeg may decode at half the size or less, opening the file properly pays.
    if fit is not None and 2 * max(_draft_size(size, fit)) <= max(size):
        return None
    check_size(*size, settings.pixel_limit)
    pixels = decode_plain_jpeg(data, *header)
    return None if pixels is None else channels_first(pixels)


def _draft_size(size: tuple[int, int], reduction: Fit | None) -> tuple[int, int]:
    """The (width, height) that libjpeg must not go below: it then decodes at the largest fraction that allows it."""
    # ADM's filter is defined on whole images.
    if reduction is None or reduction.kind == "adm" or not reduction.shrinks(size[1], size[0]):
        return size
    gap = 1 if reduction.kind == "short" else _DRAFT_GAP
    height, width = reduction.shape_of(size[1], size[0])
    return min(gap * width, size[0]), min(gap * height, size[1])


def file_shape(data: bytes, settings: DecodeSettings) -> tuple[int, int]:
    """Height and width of an image as its file has it, upright; from its header where Pillow reads it."""
    if data[128:132] != b"DICM" and data[:4] not in _TIFF_MAGIC:
        header = plain_jpeg_header(data)
        if header is not None:
            return header[1][1], header[1][0]
        with contextlib.suppress(Exception), _open(data) as image:
            turned = image.getexif().get(_ORIENTATION, 1) in _ON_ITS_SIDE
            return image.size if turned else image.size[::-1]
    whole = decode(data, DecodeSettings(pixel_limit=settings.pixel_limit))
    return whole.shape[1], whole.shape[2]


def _pixels(image: Image.Image) -> Array:
    if image.mode in _WIDE_MODES:
        return _wide_grey(image)
    return channels_first(np.asarray(_to_eight_bit_mode(image)))


def _open(data: bytes) -> Image.Image:
    """`Image.open` for our formats, without its warning about sizes: ours is checked by the caller."""
    if is_heif(data):
        return open_heif(data)
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
        tiles = "; --tiles cuts files of up to 400,000,000 into pieces" if limit == PIXEL_LIMIT else ""
        raise Undecodable(f"{width} x {height} pixels is more than the limit of {limit:,}{tiles}")


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


def convertible(have: int, channels: int) -> bool:
    return have == channels or {have, channels} <= _CONVERTED


def to_channels(pixels_CHW: Array, channels: int | None) -> Array:
    """Grey, RGB and RGBA become one another; other channel counts only themselves. Alpha is dropped, or opaque."""
    have = len(pixels_CHW)
    if channels is None or have == channels:
        return pixels_CHW
    if not convertible(have, channels):
        raise Undecodable(f"{counted(have, 'channel')}, which cannot be converted to {channels}")
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
