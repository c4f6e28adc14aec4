"""What kind of images are these? Channels, depth and size of a set, from a few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from echoless.config.counts import counted
from echoless.data.cache import CachedPixels
from echoless.data.decode import (
    DecodeSettings,
    Undecodable,
    check_size,
    convertible,
    decode,
    file_shape,
)
from echoless.data.images import Shape
from echoless.data.jpeg import plain_jpeg_header
from echoless.data.resizing import Fit
from echoless.data.sources import ImageSource
from echoless.errors import DataError

_LOOKED_AT = 64
_GLANCE = Fit("cover", (256, 256))  # channels and depth do not need every pixel


class Survey(NamedTuple):
    """`shape`, `bytes_per_image`: of the images as they are kept. `files`: heights and widths of those looked at.

    `file_channels`: of most files.
    """

    shape: Shape
    bits: int
    bytes_per_image: float
    files: tuple[tuple[int, int], ...]
    file_channels: int

    @property
    def file_shape(self) -> tuple[int, int]:
        return _typical(self.files)

    def reduced_by(self, fit: Fit | None) -> Survey:
        """The same set, kept at a smaller size."""
        kept = [fit.shape_of(*size) if fit is not None and fit.shrinks(*size) else size for size in self.files]
        pixels = float(np.mean([height * width for height, width in kept]))
        channels = self.shape.channels
        return self._replace(shape=Shape(channels, *_typical(kept)), bytes_per_image=pixels * channels * self.bits / 8)


def survey_of(pixels: CachedPixels, source: ImageSource, wanted: DecodeSettings) -> Survey:
    """What was seen when the cache was built; by an earlier version, without the channels of the files."""
    about = pixels.about
    height, width = about.get("file_shape") or about["shape"][1:]
    shape = Shape(*about["shape"])
    channels = about.get("file_channels")
    if channels is None:  # unless some were wanted, they are those of the files
        channels = shape.channels if wanted.channels is None else look_at(source, wanted).file_channels
    return Survey(shape, about["bits"], 0.0, ((height, width),), channels)


def look_at(source: ImageSource, wanted: DecodeSettings) -> Survey:
    """Channels, depth and size of the set, from a few images; not reduced yet."""
    kinds: list[tuple[int, int]] = []  # channels and bits
    files: list[tuple[int, int]] = []
    reason = ""
    for index in _spread(len(source.paths)):
        try:
            data = source.read(index)
            kinds.append(_from_header(data, wanted) if kinds else _from_pixels(data, wanted))
            files.append(file_shape(data, wanted))
        except (Undecodable, OSError) as error:
            reason = reason or f"{source.paths[index]} ({error})"
    if not kinds:
        raise DataError(f"none of the images that were tried can be decoded; first: {reason}")
    channels, bits = (_most_common(each) for each in zip(*kinds))
    require_convertible(channels, wanted.channels)
    return Survey(Shape(wanted.channels or channels, 0, 0), bits, 0.0, tuple(files), channels).reduced_by(None)


def require_convertible(have: int, wanted: int | None) -> None:
    """Refuse images whose channels nobody can convert to the wanted ones; None: they are used as they are."""
    if wanted is not None and not convertible(have, wanted):
        raise DataError(f"the images have {counted(have, 'channel')}, which cannot be converted to {wanted}")


def _from_header(data: bytes, wanted: DecodeSettings) -> tuple[int, int]:
    """Channels and bits. An ordinary JPEG says them in its header, which costs a hundredth of its pixels."""
    header = plain_jpeg_header(data)
    if header is None or wanted.bits is not None:
        return _from_pixels(data, wanted)
    check_size(*header[1], wanted.pixel_limit)
    return len(header[0]), 8


def _from_pixels(data: bytes, wanted: DecodeSettings) -> tuple[int, int]:
    image = decode(data, replace(wanted, channels=None, reduction=_GLANCE))
    return len(image), image.dtype.itemsize * 8


def _spread(count: int) -> list[int]:
    """Up to 64 numbers: eight runs of eight, because neighbours are cheap to read together."""
    if count <= _LOOKED_AT:
        return list(range(count))
    run = 8
    starts = np.linspace(0, count - run, _LOOKED_AT // run).astype(int)
    return sorted({int(start) + i for start in starts for i in range(run)})


def _typical(sizes: list[tuple[int, int]] | tuple[tuple[int, int], ...]) -> tuple[int, int]:
    """The size of most images, or the median of each side if there is no such size."""
    size, votes = Counter(sizes).most_common(1)[0]
    if 2 * votes > len(sizes):
        return size[0], size[1]
    heights, widths = zip(*sizes)
    return int(np.median(heights)), int(np.median(widths))


def _most_common(values: Iterable[int]) -> int:
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value))
