"""How is an .npz file read that nobody vouches for? Nothing is unpickled, and nothing is allocated on a header's word.

What a header announces is held against the size of the file first. Uncompressed members are memory-mapped where they
lie; compressed ones are unpacked, up to a ratio that real arrays do not reach.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from echoless.errors import DataError, UntrustedFile

_HIGHEST_RATIO = 100  # of a compressed member; images compress by far less, a bomb by about 1000
_HARMLESS = 64 * 2**20  # bytes that any member may unpack to

Array = NDArray[Any]


class Header(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype
    length: int  # of the header itself

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class NpzFile:
    """The arrays of an .npz file by name, each checked before it is read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with self.open() as archive:
            self._infos = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}

    def __contains__(self, name: str) -> bool:
        return name in self._infos

    def open(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(self.path)
        except (OSError, zipfile.BadZipFile, ValueError) as error:
            raise UntrustedFile(f"{self.path} is not a readable .npz file: {error}") from None

    @property
    def members(self) -> str:
        """The names of the first few arrays, for people."""
        return ", ".join(sorted(self._infos)[:8]) or "nothing"

    def header(self, name: str) -> Header:
        """The member's header, if its announced size, its stored size and the file's size agree."""
        if name not in self:
            raise DataError(f"{self.path} holds {self.members}; it needs an array named {name!r}")
        info = self._infos[name]
        if info.compress_size > self.path.stat().st_size:
            raise UntrustedFile(f"{self.path}: {name} announces {info.compress_size:,} bytes, more than the file has")
        if info.file_size > max(_HIGHEST_RATIO * info.compress_size, _HARMLESS):
            raise UntrustedFile(
                f"{self.path}: {name} would unpack {info.compress_size:,} bytes to {info.file_size:,}; "
                f"allowed: up to {_HIGHEST_RATIO} times"
            )
        try:
            with self.open() as archive, archive.open(info) as member:
                header = _read_header(member)
        except Exception as error:  # zipfile and numpy raise many things on hostile bytes
            raise UntrustedFile(f"{self.path}: {name} is not a readable array: {error}") from None
        if header.bytes + header.length != info.file_size:
            raise UntrustedFile(
                f"{self.path}: {name} announces {header.bytes:,} bytes of {header.dtype} {header.shape} "
                f"and holds {info.file_size - header.length:,}"
            )
        return header

    def map(self, name: str, header: Header) -> Array | None:
        """The array where it lies in the file; None if it is compressed or empty."""
        info = self._infos[name]
        if info.compress_type != zipfile.ZIP_STORED or header.bytes == 0:
            return None
        with self.path.open("rb") as file:
            file.seek(info.header_offset + 26)  # lengths of the name and the extra field in the local header
            lengths = np.frombuffer(file.read(4), "<u2")
        start = info.header_offset + 30 + int(lengths.sum()) + header.length
        if start + header.bytes > self.path.stat().st_size:
            raise UntrustedFile(f"{self.path}: {name} reaches past the end of the file")
        return np.memmap(self.path, header.dtype, "r", start, header.shape)

    def read(self, name: str, header: Header) -> Array:
        """The whole array, mapped or unpacked."""
        mapped = self.map(name, header)
        if mapped is not None:
            return mapped
        with self.open() as archive, archive.open(self._infos[name]) as member:
            member.read(header.length)
            return np.frombuffer(self.take(member, header.bytes), header.dtype).reshape(header.shape)

    def member(self, archive: zipfile.ZipFile, name: str) -> IO[bytes]:
        """The member as a stream, header first, of an archive that `open` returned."""
        return archive.open(self._infos[name])

    def take(self, member: IO[bytes], size: int) -> bytes:
        """The next `size` bytes of a member."""
        try:
            data = member.read(size)
        except Exception as error:  # zlib.error has no base but Exception
            raise UntrustedFile(f"{self.path} cannot be unpacked: {error}") from None
        if len(data) != size:
            raise UntrustedFile(f"{self.path} ends early")
        return data


def _read_header(member: IO[bytes]) -> Header:
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
    return Header(tuple(shape), dtype, member.tell())
