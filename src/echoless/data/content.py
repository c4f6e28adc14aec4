"""Are these the same images? Every image's bytes are hashed once; names, sizes and times never stand for content.

The hashes are taken while the decoded cache is built, from the bytes that are read anyway. They are then remembered
under the stamps of the files (place, size, times of change, inode), so that opening the same files again reads nothing.

A file that is written again within the resolution of its time of change keeps its stamp. So hashes are trusted only if
every file was last changed well before they were taken; until then they are taken again.
"""

from __future__ import annotations

import hashlib
import os
import time
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, overload

import numpy as np

from echoless.data.cache import kept_on_disk
from echoless.data.resample import Array
from echoless.errors import RunError
from echoless.storage import clear_leftovers, write_bytes
from echoless.storage.seal import sealed, unsealed

DIGEST_BYTES = 16
_LINES_AT_ONCE = 4096
_SETTLED_NS = 2 * 10**9  # the coarsest time of change in use, that of FAT, counts in two seconds

Chunk = tuple[int, list[bytes | OSError]]  # the number of the first image, and the encoded bytes of a few


class Stamp(NamedTuple):
    """What a file system says of a file; it changes whenever the file is replaced, renamed over or written later."""

    place: str
    size: int
    modified_ns: int
    changed_ns: int
    inode: int


def stamp(path: os.PathLike[str] | str, status: os.stat_result | None = None) -> Stamp:
    """A file that is elsewhere has one of its own (`remote`)."""
    if isinstance(own := getattr(path, "stamp", None), Stamp):
        return own
    status = status or os.stat(path)  # noqa: PTH116 (as below)
    place = os.path.abspath(path)  # noqa: PTH100 (a Path is several times as slow, and there may be millions of files)
    return Stamp(place, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)


class Stamps(Sequence[Stamp]):
    """Those of the files below a folder: four numbers each, whose places are computed from their paths."""

    def __init__(self, root: Path, paths: Sequence[str], numbers_N4: Array) -> None:
        self._root, self._paths, self._numbers = os.path.abspath(root), paths, numbers_N4  # noqa: PTH100

    @staticmethod
    def row(status: os.stat_result) -> tuple[int, int, int, int]:
        """Times before 1970 are negative, inodes may need all 64 bits: both are kept modulo 2^64."""
        return status.st_size, status.st_mtime_ns % 2**64, status.st_ctime_ns % 2**64, status.st_ino % 2**64

    @staticmethod
    def of(root: Path, paths: Sequence[str], rows: array[int], order_N: Array) -> Stamps:
        """`rows`: four numbers after four numbers, in the order in which the files were found."""
        return Stamps(root, paths, kept_on_disk(np.frombuffer(rows, np.uint64).reshape(-1, 4)[order_N]))

    def __len__(self) -> int:
        return len(self._paths)

    @overload
    def __getitem__(self, index: int) -> Stamp: ...
    @overload
    def __getitem__(self, index: slice) -> list[Stamp]: ...
    def __getitem__(self, index: int | slice) -> Stamp | list[Stamp]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        return self._stamp(self._paths[index], *self._numbers[index].tolist())

    def __iter__(self) -> Iterator[Stamp]:
        for path, numbers in zip(self._paths, self._numbers):
            yield self._stamp(path, *numbers.tolist())

    def size(self, index: int) -> int:
        return int(self._numbers[index, 0])

    def _stamp(self, path: str, size: int, modified: int, changed: int, inode: int) -> Stamp:
        place = os.path.join(self._root, path)  # noqa: PTH118 (as above)
        return Stamp(place, size, _signed(modified), _signed(changed), inode)


def _signed(number: int) -> int:
    return number - 2**64 if number >= 2**63 else number


def _last_change_ns(of: Stamp) -> int:
    """Nobody can set the time of change, whereas a camera or a time zone may put that of modification into the future.

    On Windows `changed_ns` is the time of creation.
    """
    return of.changed_ns if os.name == "posix" else max(of.modified_ns, of.changed_ns)


def is_settled(of: Stamp, moment_ns: int) -> bool:
    """Whether a file that was read then had its last change long enough before to show in its stamp."""
    return _last_change_ns(of) + _SETTLED_NS <= moment_ns


class Content(NamedTuple):
    """`digests_ND`: one hash per image, (N, 16) bytes. `fingerprint`: of all of them with their relative paths."""

    fingerprint: str
    digests_ND: Array


def digest(lines: Iterable[str]) -> str:
    """SHA-256 of the lines; each ends where the next begins."""
    whole, lines = hashlib.sha256(), iter(lines)
    while some := list(islice(lines, _LINES_AT_ONCE)):
        encoded = [line.encode(errors="surrogateescape") for line in some]
        whole.update(b"".join([b"%d:%b" % (len(line), line) for line in encoded]))
    return whole.hexdigest()


def make_content(paths: Sequence[str], digests: bytes | bytearray | Array) -> Content:
    """`digests`: the hashes of the images, one after the other."""
    digests_ND = np.frombuffer(digests, np.uint8).reshape(-1, DIGEST_BYTES)
    return Content(fingerprint_of(paths, digests_ND), kept_on_disk(digests_ND))


def fingerprint_of(paths: Iterable[str], digests_ND: Array) -> str:
    in_hex = (each.hex() for each in _pieces(digests_ND.data.cast("B"), DIGEST_BYTES))
    return digest(f"{path}/{each}" for path, each in zip(paths, in_hex, strict=True))


def _pieces(data: memoryview, size: int) -> Iterator[memoryview]:
    return (data[start : start + size] for start in range(0, len(data), size))


def digest_of(blob: bytes | memoryview | OSError) -> bytes:
    """The hash of one image; all that cannot be read have the same."""
    return hashlib.sha256(b"unreadable" if isinstance(blob, OSError) else blob).digest()[:DIGEST_BYTES]


class BrokenLink(OSError):
    """A link in the place of an image that leads nowhere: its stamp says so, and changes when it leads somewhere."""


class Hasher:
    """Hashes images as they are read: `for first, blobs in hasher.passing(source.chunks())`."""

    def __init__(self) -> None:
        self.digests = bytearray()  # of all images so far, one after the other
        self.complete = True  # whether every image could be read, or will be as unreadable while the stamps are these
        self.began_ns = time.time_ns()

    @classmethod
    def joined(cls, found: Iterable[Mapping[str, Any]]) -> Hasher:
        """What the hashers of several ranges of images found (`found`), in the order of the images."""
        whole = cls()
        for each in found:
            whole.digests += bytes.fromhex(each["digests"])
            whole.complete = whole.complete and each["complete"]
            whole.began_ns = min(whole.began_ns, each["began_ns"])
        return whole

    def found(self) -> dict[str, Any]:
        """As JSON."""
        return {"digests": self.digests.hex(), "complete": self.complete, "began_ns": self.began_ns}

    def passing(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        for first, blobs in chunks:
            self.add(blobs)
            yield first, blobs

    def add(self, blobs: Sequence[bytes | memoryview | OSError]) -> None:
        self.digests += b"".join([digest_of(blob) for blob in blobs])
        failed = (blob for blob in blobs if isinstance(blob, OSError))
        self.complete = self.complete and all(isinstance(blob, BrokenLink) for blob in failed)


class Memory:
    """The hashes that were taken of exactly these files, kept below the folder of the caches."""

    def __init__(self, root: Path, stamps: Sequence[Stamp], selection: str = "") -> None:
        """`selection`: which of the images in these files, where it is not all of them."""
        self._stamps = stamps
        words = (f"{place}\0{size} {modified} {changed} {inode}" for place, size, modified, changed, inode in stamps)
        self.name = digest(chain(words, [selection] if selection else []))  # of these files, as they are now
        self._file = root / "content" / self.name[:32]

    @property
    def exists(self) -> bool:
        """Whether hashes were ever taken: then the pixels are likely cached, and hashing again comes first."""
        return self._file.exists()

    def recall(self, paths: Sequence[str]) -> Content | None:
        """What the images are, if the hashes can be trusted."""
        digests = self.digests()
        if digests is None or len(digests) != len(paths) * DIGEST_BYTES:
            return None
        return make_content(paths, digests)

    def digests(self) -> bytes | None:
        """The hashes, one after the other, if they can be trusted."""
        try:
            body = unsealed(self._file.read_bytes())
        except OSError:
            return None
        if body is None or not self.settled_before(int.from_bytes(body[:8], "big")):
            return None
        return body[8:]

    def settled_before(self, moment_ns: int) -> bool:
        """Whether all files, read then, had their last change long enough before."""
        return all(is_settled(each, moment_ns) for each in self._stamps)

    def keep(self, hasher: Hasher) -> None:
        """Unless a file could not be read. A full or read-only disk is no error.

        A file that changed while it was read has another stamp from then on, under which nothing is kept; the stamps
        that it shares with its earlier content are too young to be trusted.
        """
        if not hasher.complete:
            return
        body = hasher.began_ns.to_bytes(8, "big") + hasher.digests
        with suppress(OSError, RunError):
            self._file.parent.mkdir(parents=True, exist_ok=True)
            clear_leftovers(self._file.parent, self._file.name)
            write_bytes(self._file, sealed(body))
