"""Which images does DATA hold, and what are their bytes?

A source gives every image an integer and a stable relative path, and reads the encoded bytes of one on demand. It never
holds them all: 50,000 images cost no more memory than 50, apart from their paths.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from echoless.data.content import Stamp, stamp
from echoless.errors import DataError

IMAGE_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff"),
        *("ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "tga", "dcm", "dicom"),
    )
)
CHUNK = 64
LARGEST_FILE = 2**31  # bytes of one encoded image: a larger one would fill the memory before it is refused


class ImageSource(Protocol):
    """Encoded images by number."""

    @property
    def paths(self) -> Sequence[str]:
        """One per image, relative, the same wherever the data lies."""

    @property
    def labels(self) -> Sequence[int | str] | None:
        """One per image, or None."""

    @property
    def class_names(self) -> Sequence[str] | None:
        """Only where the data names its integer labels."""

    def read(self, index: int) -> bytes:
        """The encoded bytes of one image; OSError if the storage fails."""

    def chunks(self) -> Iterator[tuple[int, list[bytes | OSError]]]:
        """Every image in order, a few at a time, with the number of the first: the cheap way to read them all."""

    @property
    def stamps(self) -> Sequence[Stamp]:
        """One per file, as it was when the source was opened: what changes when it is replaced."""


def read_in_order(
    source: ImageSource, first: int = 0, last: int | None = None
) -> Iterator[tuple[int, list[bytes | OSError]]]:
    """`ImageSource.chunks` for sources that read any image as cheaply as the next; or of images first .. last - 1."""
    end = len(source.paths) if last is None else last
    for start in range(first, end, CHUNK):
        yield start, [read_or_error(source, i) for i in range(start, min(start + CHUNK, end))]


def chunks_between(source: ImageSource, first: int, last: int) -> Iterator[tuple[int, list[bytes | OSError]]]:
    """Those of images first .. last - 1, in the cheapest way."""
    return source.chunks() if (first, last) == (0, len(source.paths)) else read_in_order(source, first, last)


def read_or_error(source: ImageSource, index: int) -> bytes | OSError:
    try:
        return source.read(index)
    except OSError as error:
        return error


class FolderSource:
    """Image files below a folder, in the order of their paths.

    The first-level sub-folders are the classes if there are at least two and every image is inside one of them.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.paths: list[str] = []
        self.stamps: list[Stamp] = []
        ignored = 0
        for path, entry in sorted(_walk(root, "", set())):
            if not _is_image(path):
                ignored += 1
                continue
            self.paths.append(path)
            self.stamps.append(entry)
        if not self.paths:
            kinds = ", ".join(sorted(IMAGE_SUFFIXES))
            raise DataError(f"{root} holds no image file ({ignored} other files); looked for {kinds}")
        self.labels = _labels_from_folders(self.paths)
        self.class_names: list[str] | None = None

    def read(self, index: int) -> bytes:
        if (size := self.stamps[index].size) > LARGEST_FILE:
            raise OSError(f"the file has {size:,} bytes; allowed: {LARGEST_FILE:,}")
        return (self.root / self.paths[index]).read_bytes()

    def chunks(self) -> Iterator[tuple[int, list[bytes | OSError]]]:
        return read_in_order(self)


def count_image_files(root: Path) -> int:
    return sum(_is_image(path) for path, _ in _walk(root, "", set()))


def _is_image(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122 (a Path is several times as slow)


def _walk(root: Path, inside: str, seen: set[str]) -> Iterator[tuple[str, Stamp]]:
    """(relative path, stamp) of every visible file; a folder that links reach twice counts once."""
    real = os.path.realpath(root / inside)
    if real in seen:
        return
    seen.add(real)
    for entry in os.scandir(root / inside):
        path = f"{inside}/{entry.name}" if inside else entry.name
        if entry.name.startswith(".") or entry.name == "__MACOSX":
            continue
        with suppress(OSError):  # a link that leads nowhere, or to itself
            if entry.is_dir():
                yield from _walk(root, path, seen)
            elif entry.is_file():  # not a pipe, nor a device
                yield path, stamp(entry.path, entry.stat())


def _labels_from_folders(paths: list[str]) -> list[str] | None:
    folders = [path.split("/", 1)[0] if "/" in path else None for path in paths]
    return folders if None not in folders and len(set(folders)) > 1 else None  # type: ignore[return-value]
