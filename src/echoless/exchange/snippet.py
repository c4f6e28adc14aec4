"""How does Python open an image for an exported encoder? The first lines of the snippet in its model card.

They name `image`, a picture of Pillow, where the library prepares it; else `images`, a numpy array that is prepared
as echoless does it.
"""

from __future__ import annotations

from echoless.data.resizing import SHARE
from echoless.exchange.exported import ExportedEncoder

_MODES = {1: "L", 3: "RGB"}  # of Pillow, by the channels of the images


def has_pictures(source: ExportedEncoder) -> bool:
    """Whether Pillow opens its images, and other libraries prepare them: 8 bits, grey or in colour."""
    return source.encoder.config.channels in _MODES and source.bits != 16


def upright(source: ExportedEncoder) -> str:
    """Phones keep photographs lying on their side, and say so in EXIF: nobody but us reads that unasked."""
    return f'ImageOps.exif_transpose(Image.open("photo.jpg")).convert("{_MODES[source.encoder.config.channels]}")'


def as_picture(source: ExportedEncoder) -> str:
    return f"from PIL import Image, ImageOps\n\nimage = {upright(source)}   # as echoless opens 8-bit images\n\n"


def as_array(source: ExportedEncoder) -> str:
    """(1, channels, height, width): of a file where one file holds all channels, else where to put one's own."""
    if has_pictures(source):
        opened, white = f"image = {upright(source)}   # as echoless opens 8-bit images", 255
    elif source.encoder.config.channels == 1:
        opened, white = _ALL_LEVELS, 65535
    else:
        return f"import numpy\n\n{_own_array(source)}\n\n"
    return f"import numpy\nfrom PIL import Image, ImageOps\n\n{opened}\n{_prepared(source, white)}\n\n"


_ALL_LEVELS = """\
image = ImageOps.exif_transpose(Image.open("image.png"))   # of 16 bits: convert("L") would make all above 255 white
image = Image.fromarray(numpy.asarray(image, "float32"))"""


def _prepared(source: ExportedEncoder, white: int) -> str:
    config = source.encoder.config
    height, width = config.image_size
    border = f", bleed={(1 - SHARE) / 2:g}" if source.large else ""
    name = "BICUBIC" if source.large else "BILINEAR"
    mean, std = (f'numpy.array([{comma_separated(values)}], "float32")' for values in (source.mean, source.std))
    return (
        f"image = ImageOps.fit(image, ({width}, {height}), Image.Resampling.{name}{border})\n"
        f'levels = numpy.asarray(image, "float32").reshape({height}, {width}, {config.channels}) / {white}\n'
        f"mean, std = {mean}, {std}\n"
        "images = ((levels - mean) / std).transpose(2, 0, 1)[None]"
    )


def _own_array(source: ExportedEncoder) -> str:
    shape = (1, source.encoder.config.channels, *source.encoder.config.image_size)
    return f'images = numpy.zeros({shape}, "float32")   # your own instead, prepared as described below'


def comma_separated(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)
