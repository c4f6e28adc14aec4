"""Are these the bytes that were written? A seal is a file's size and SHA-256, taken while it was written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from echoless.errors import RunError, UntrustedFile
from echoless.storage.atomic import create_file
from echoless.storage.jsonfile import open_untrusted

_CHUNK = 2**20
_DIGEST_BYTES = 32


class Seal(NamedTuple):
    """Size and SHA-256 of a file."""

    bytes: int
    sha256: str

    @classmethod
    def parse(cls, value: Any, path: Path) -> Seal:
        """The seal in an untrusted JSON object."""
        if isinstance(value, dict) and set(value) == {"bytes", "sha256"}:
            size, digest = value["bytes"], value["sha256"]
            if type(size) is int and size >= 0 and isinstance(digest, str):
                return cls(size, digest)
        raise UntrustedFile(f"{path} has no valid seal; allowed: an object with bytes and sha256")


class SealingWriter:
    """Writes to a file and hashes what passes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._hash, self._bytes = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> None:
        self._file.write(data)
        self._hash.update(data)
        self._bytes += len(data)

    def seal(self) -> Seal:
        return Seal(self._bytes, self._hash.hexdigest())


@contextmanager
def create_sealed(path: Path) -> Iterator[SealingWriter]:
    """A new file, forced to the disk at the end; ask the writer for its seal."""
    with create_file(path) as file:
        yield SealingWriter(file)


def write_sealed(path: Path, data: bytes) -> Seal:
    """A new file that holds `data`, forced to the disk."""
    with create_sealed(path) as writer:
        writer.write(data)
    return writer.seal()


def sealed(data: bytes) -> bytes:
    """A small file that carries its own seal: the data with its SHA-256 behind it."""
    return data + hashlib.sha256(data).digest()


def unsealed(whole: bytes) -> bytes | None:
    """What `sealed` was given; None if these are not its bytes."""
    data, digest = whole[:-_DIGEST_BYTES], whole[-_DIGEST_BYTES:]
    return data if hashlib.sha256(data).digest() == digest else None


def seal_of(path: Path) -> Seal:
    """The seal of a file that was written otherwise."""
    with path.open("rb") as file:
        return Seal(os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest())


def check_seal(path: Path, seal: Seal) -> None:
    """Refuse a file whose size or content is not what was written. The size comes first and costs nothing."""
    with open_untrusted(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size != seal.bytes:
            raise RunError(f"{path} is damaged: it has {size} bytes, and {seal.bytes} were written")
        digest, chunk = hashlib.sha256(), bytearray(_CHUNK)
        while count := file.readinto(chunk):  # type: ignore[attr-defined]
            digest.update(memoryview(chunk)[:count])
    if digest.hexdigest() != seal.sha256:
        raise RunError(f"{path} is damaged: its SHA-256 is not the one that was written")
