"""How are images read from an .npz file?

`images` (N, H, W) or (N, H, W, C), uint8 or uint16; optional `labels` (N) and `masks` (N, H, W). Files of samples have
`arr_0` instead of `images`, as the tools that judge them want it. `storage/npzfile.py` reads the members: nothing is
unpickled, uncompressed ones are memory-mapped, and compressed ones are streamed into the decoded cache.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from echoless.data.content import Hasher, stamp
from echoless.data.images import BadSample, Fetched
from echoless.data.resample import Array
from echoless.data.sources import CHUNK
from echoless.errors import DataError
from echoless.storage.npzfile import Header, NpzFile


class ArrayFile:
    """The members of an .npz file, checked and ready to read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps = [stamp(path)]
        self._file = NpzFile(path)
        self._member = "arr_0" if "images" not in self._file and "arr_0" in self._file else "images"
        self.header = self._file.header(self._member)
        _check_layout(path, self.header)
        self.labels = self._beside("labels")
        self.masks = self._beside("masks")
        self.mapped = self._file.map(self._member, self.header)
        if self.labels is not None and (self.labels.ndim != 1 or self.labels.dtype.kind not in "iuU"):
            raise DataError(
                f"{path}: labels are {self.labels.dtype} {self.labels.shape}; allowed: one integer or string each"
            )

    def __len__(self) -> int:
        return self.header.shape[0]

    @property
    def channels(self) -> int:
        return self.header.shape[3] if len(self.header.shape) == 4 else 1

    @property
    def bits(self) -> int:
        return self.header.dtype.itemsize * 8

    def fetch(self, ids: Array) -> Fetched:
        if self.mapped is None:
            raise DataError(
                f"{self.path} is compressed and can only be read through the cache; allowed: cache='on' or 'auto'"
            )
        return _to_bchw(np.asarray(self.mapped)[ids])

    def stream(self) -> Iterator[list[Array | BadSample]]:
        """Every image in order, a few at a time, unpacked as they come."""
        row = self.header.bytes // max(len(self), 1)
        with self._file.open() as archive, self._file.member(archive, self._member) as member:
            member.read(self.header.length)
            for start in range(0, len(self), CHUNK):
                count = min(CHUNK, len(self) - start)
                data = self._file.take(member, count * row)
                yield list(_to_bchw(np.frombuffer(data, self.header.dtype).reshape(count, *self.header.shape[1:])))

    def hash(self) -> Hasher:
        """The hash of every image's pixels."""
        hasher = Hasher()
        for images in self.stream():
            for image in images:
                assert isinstance(image, np.ndarray)
                hasher.add(np.ascontiguousarray(image).data)
        return hasher

    def _beside(self, name: str) -> Array | None:
        """An optional array with one entry per image."""
        if name not in self._file:
            return None
        header = self._file.header(name)
        if not header.shape or header.shape[0] != len(self):
            raise DataError(
                f"{self.path}: {name} has shape {header.shape}; allowed: {len(self)} entries, one per image"
            )
        return self._file.read(name, header)


def _check_layout(path: Path, header: Header) -> None:
    if header.dtype not in (np.uint8, np.uint16):
        raise DataError(f"{path}: images are {header.dtype}; allowed: uint8, uint16")
    if len(header.shape) not in (3, 4) or 0 in header.shape:
        raise DataError(f"{path}: images have shape {header.shape}; allowed: (N, H, W) or (N, H, W, C)")
    if len(header.shape) == 4 and header.shape[3] > 16 and header.shape[1] <= 16:
        raise DataError(f"{path}: images have shape {header.shape}, channels first; allowed: (N, H, W, C)")


def _to_bchw(images: Array) -> Array:
    native = images.astype(images.dtype.newbyteorder("="), copy=False)
    return native[:, None] if native.ndim == 3 else native.transpose(0, 3, 1, 2)
