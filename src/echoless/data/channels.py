"""How do images that are decoded already get the channels of a model? Grey, RGB and RGBA become one another.

Files are converted while they are decoded, by the same function (`decode.to_channels`).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from echoless.config.counts import counted
from echoless.data.decode import to_channels
from echoless.data.images import BadSample, Fetched, Images, PixelStore
from echoless.data.resample import Array
from echoless.data.survey import require_convertible


class Converted:
    """Pixels of another store, with this number of channels. The store, and any cache of it, keeps its own."""

    def __init__(self, store: PixelStore, channels: int) -> None:
        self._store, self._channels = store, channels

    def fetch(self, ids: Array) -> Fetched:
        found = self._store.fetch(ids)
        if isinstance(found, np.ndarray):
            return np.stack([to_channels(image, self._channels) for image in found]) if len(found) else found
        return [each if isinstance(each, BadSample) else to_channels(each, self._channels) for each in found]


def with_channels(images: Images, channels: int | None) -> Images:
    """The same images with this number of channels; None: with their own."""
    have = images.shape.channels
    require_convertible(have, channels)
    if channels is None or channels == have:
        return images
    shape = images.shape._replace(channels=channels)
    return replace(images, pixels=Converted(images.pixels, channels), shape=shape, file_channels=have)


def converted_note(images: Images) -> str:
    """A sentence where the files have other channels than the images that they become."""
    have, wanted = images.file_channels, images.shape.channels
    return "" if have in (None, wanted) else f"channels: images of {counted(have, 'channel')} are converted to {wanted}"
