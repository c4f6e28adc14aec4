"""How are images read from an .npz file?

`images` (N, H, W) or (N, H, W, C), uint8, uint16, or floats from 0 to 1, which become 8 bit; optional `labels` (N) and
`masks` (N, H, W). `x` and `y` are other names of the first two, and `arr_0` of `images`. Nothing is unpickled.
What a header announces is held against the size of the file before anything is allocated. Uncompressed members are
memory-mapped where they lie; compressed ones are streamed into the decoded cache.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from echoless.data.content import Hasher, stamp
from echoless.data.images import BadSample, Fetched
from echoless.data.resample import Array
from echoless.data.sources import CHUNK
from echoless.errors import DataError, UntrustedFile

_HIGHEST_RATIO = 100  # of a compressed member; images compress by far less, a bomb by about 1000
_HARMLESS = 64 * 2**20  # bytes that any member may unpack to


IMAGES, LABELS = ("images", "x", "arr_0"), ("labels", "y")  # names of the members; the first that is there counts


class _Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype
    length: int  # of the header itself

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class ArrayFile:
    """The members of an .npz file, checked and ready to read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.stamps = [stamp(path)]
        with self._open() as archive:
            self._member = _present(archive, *IMAGES)
            self.header = self._checked(archive, self._member)
            _check_layout(path, self.header)
            count = self.header.shape[0]
            self.labels = self._small(archive, _present(archive, *LABELS), count)
            self.masks = self._small(archive, "masks", count)
            self.mapped = self._map(archive, self._member, self.header)
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
        """Of the pixels that `fetch` and `stream` give: floats become 8 bit."""
        return 16 if self.header.dtype == np.uint16 else 8

    def fetch(self, ids: Array) -> Fetched:
        if self.mapped is None:
            raise DataError(
                f"{self.path} is compressed and can only be read through the cache; allowed: cache='on' or 'auto'"
            )
        return _to_bchw(np.asarray(self.mapped)[ids], self.path)

    def stream(self) -> Iterator[list[Array | BadSample]]:
        """Every image in order, a few at a time, unpacked as they come."""
        row = self.header.bytes // max(len(self), 1)
        with self._open() as archive, archive.open(f"{self._member}.npy") as member:
            member.read(self.header.length)
            for start in range(0, len(self), CHUNK):
                count = min(CHUNK, len(self) - start)
                data = _read(member, count * row, self.path)
                yield list(
                    _to_bchw(np.frombuffer(data, self.header.dtype).reshape(count, *self.header.shape[1:]), self.path)
                )

    def hash(self) -> Hasher:
        """The hash of every image's pixels."""
        hasher = Hasher()
        for images in self.stream():
            for image in images:
                assert isinstance(image, np.ndarray)
                hasher.add(np.ascontiguousarray(image).data)
        return hasher

    def _open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise UntrustedFile(f"{self.path} is not a readable .npz file: {error}") from None

    def _checked(self, archive: zipfile.ZipFile, name: str) -> _Header:
        """The member's header, if its announced size, its stored size and the file's size agree."""
        if f"{name}.npy" not in archive.namelist():
            found = ", ".join(sorted(archive.namelist())[:8]) or "nothing"
            raise DataError(f"{self.path} holds {found}; it needs an array named {name!r}")
        info = archive.getinfo(f"{name}.npy")
        if info.compress_size > self.path.stat().st_size:
            raise UntrustedFile(f"{self.path}: {name} announces {info.compress_size:,} bytes, more than the file has")
        if info.file_size > max(_HIGHEST_RATIO * info.compress_size, _HARMLESS):
            raise UntrustedFile(
                f"{self.path}: {name} would unpack {info.compress_size:,} bytes to {info.file_size:,}; "
                f"allowed: up to {_HIGHEST_RATIO} times"
            )
        try:
            with archive.open(info) as member:
                header = _read_header(member)
        except Exception as error:  # zipfile and numpy raise many things on hostile bytes
            raise UntrustedFile(f"{self.path}: {name} is not a readable array: {error}") from None
        if header.bytes + header.length != info.file_size:
            raise UntrustedFile(
                f"{self.path}: {name} announces {header.bytes:,} bytes of {header.dtype} {header.shape} "
                f"and holds {info.file_size - header.length:,}"
            )
        return header

    def _small(self, archive: zipfile.ZipFile, name: str, count: int) -> Array | None:
        if f"{name}.npy" not in archive.namelist():
            return None
        header = self._checked(archive, name)
        if not header.shape or header.shape[0] != count:
            raise DataError(f"{self.path}: {name} has shape {header.shape}; allowed: {count} entries, one per image")
        mapped = self._map(archive, name, header)
        if mapped is not None:
            return mapped
        with archive.open(f"{name}.npy") as member:
            member.read(header.length)
            return np.frombuffer(_read(member, header.bytes, self.path), header.dtype).reshape(header.shape)

    def _map(self, archive: zipfile.ZipFile, name: str, header: _Header) -> Array | None:
        info = archive.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED or header.bytes == 0:
            return None
        with self.path.open("rb") as file:
            file.seek(info.header_offset + 26)  # lengths of the name and the extra field in the local header
            lengths = np.frombuffer(file.read(4), "<u2")
        start = info.header_offset + 30 + int(lengths.sum()) + header.length
        if start + header.bytes > self.path.stat().st_size:
            raise UntrustedFile(f"{self.path}: {name} reaches past the end of the file")
        return np.memmap(self.path, header.dtype, "r", start, header.shape)


def _present(archive: zipfile.ZipFile, *names: str) -> str:
    """The first of these members that the file has; the first name where it has none."""
    return next((name for name in names if f"{name}.npy" in archive.namelist()), names[0])


def _read_header(member: IO[bytes]) -> _Header:
    version = np.lib.format.read_magic(member)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"npy version {version}")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(member)
    if fortran and len(shape) > 1:
        raise ValueError("Fortran order; arrays must be in C order")
    if dtype.hasobject:
        raise ValueError("Python objects; arrays must hold numbers")
    if any(side < 0 for side in shape):
        raise ValueError(f"shape {shape}")
    return _Header(tuple(shape), dtype, member.tell())


def _check_layout(path: Path, header: _Header) -> None:
    if header.dtype not in (np.uint8, np.uint16) and header.dtype.kind != "f":
        raise DataError(f"{path}: images are {header.dtype}; allowed: uint8, uint16, or floats from 0 to 1")
    if len(header.shape) not in (3, 4) or 0 in header.shape:
        raise DataError(f"{path}: images have shape {header.shape}; allowed: (N, H, W) or (N, H, W, C)")
    if len(header.shape) == 4 and header.shape[3] > 16 and header.shape[1] <= 16:
        raise DataError(f"{path}: images have shape {header.shape}, channels first; allowed: (N, H, W, C)")


def _read(member: IO[bytes], size: int, path: Path) -> bytes:
    try:
        data = member.read(size)
    except Exception as error:  # zlib.error has no base but Exception
        raise UntrustedFile(f"{path} cannot be unpacked: {error}") from None
    if len(data) != size:
        raise UntrustedFile(f"{path} ends early")
    return data


def _to_bchw(images: Array, path: Path) -> Array:
    native = images.astype(images.dtype.newbyteorder("="), copy=False)
    if native.dtype.kind == "f":
        if not (native.min() >= 0 and native.max() <= 1):  # also where a value is no number
            raise DataError(f"{path}: images have values outside 0 to 1; allowed: floats from 0 to 1, or uint8, uint16")
        native = np.rint(native * 255).astype(np.uint8)
    return native[:, None] if native.ndim == 3 else native.transpose(0, 3, 1, 2)
