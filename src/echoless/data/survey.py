"""What kind of images are these? Channels, depth and size of a set, from a few of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from echoless.data.cache import CachedPixels
from echoless.data.decode import DecodeSettings, Undecodable, decode
from echoless.data.images import Shape
from echoless.data.resample import Array
from echoless.data.sources import ImageSource
from echoless.errors import DataError

_LOOKED_AT = 64


class Survey(NamedTuple):
    shape: Shape
    bits: int
    bytes_per_image: float


def survey_of(pixels: CachedPixels) -> Survey:
    """What was seen when the cache was built."""
    return Survey(Shape(*pixels.about["shape"]), pixels.about["bits"], 0.0)


def look_at(source: ImageSource, wanted: DecodeSettings) -> Survey:
    """Channels, depth and size of the set, from a few images decoded as they are."""
    found: list[Array] = []
    reason = ""
    for index in _spread(len(source.paths)):
        try:
            found.append(decode(source.read(index), wanted))
        except (Undecodable, OSError) as error:
            reason = reason or f"{source.paths[index]} ({error})"
    if not found:
        raise DataError(f"none of the images that were tried can be decoded; first: {reason}")
    channels = _most_common(len(image) for image in found)
    bits = _most_common(image.dtype.itemsize * 8 for image in found)
    height, width = _typical([image.shape[1:] for image in found])
    mean_pixels = float(np.mean([image[0].size for image in found]))
    return Survey(Shape(channels, height, width), bits, mean_pixels * channels * bits / 8)


def _spread(count: int) -> list[int]:
    """Up to 64 numbers: eight runs of eight, because neighbours are cheap to read together."""
    if count <= _LOOKED_AT:
        return list(range(count))
    run = 8
    starts = np.linspace(0, count - run, _LOOKED_AT // run).astype(int)
    return sorted({int(start) + i for start in starts for i in range(run)})


def _typical(sizes: list[tuple[int, ...]]) -> tuple[int, int]:
    """The size of most images, or the median of each side if there is no such size."""
    size, votes = Counter(sizes).most_common(1)[0]
    if 2 * votes > len(sizes):
        return size[0], size[1]
    heights, widths = zip(*sizes)
    return int(np.median(heights)), int(np.median(widths))


def _most_common(values: Iterator[int]) -> int:
    counts = Counter(values)
    return max(counts, key=lambda value: (counts[value], value))
