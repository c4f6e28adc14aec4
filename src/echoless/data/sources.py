"""Which images does DATA hold, and what are their bytes?

A source gives every image an integer and a stable relative path, and reads the encoded bytes of one on demand. It never
holds them all: ten million images cost no more memory than 50, because their paths are on disk, too (`paths`).
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from echoless.config.counts import counted, listed
from echoless.data.content import BrokenLink, Stamp, Stamps
from echoless.data.paths import PathColumn
from echoless.errors import DataError
from echoless.storage.owned import is_run

IMAGE_SUFFIXES = frozenset(
    f".{name}"
    for name in (
        *("jpg", "jpeg", "jpe", "jfif", "png", "gif", "bmp", "webp", "tif", "tiff"),
        *("ppm", "pgm", "pbm", "pnm", "jp2", "j2k", "tga", "dcm", "dicom", "avif", "heic", "heif"),
    )
)
CHUNK = 64
_NOT_DATA = ("__MACOSX", "lost+found")  # of archives made on a Mac; of the root of a disk, for its administrator
LARGEST_FILE = 2**31  # bytes of one encoded image: a larger one would fill the memory before it is refused


class ImageSource(Protocol):
    """Encoded images by number."""

    @property
    def paths(self) -> Sequence[str]:
        """One per image, relative, the same wherever the data lies."""

    @property
    def labels(self) -> Sequence[int | str | None] | None:
        """One per image, None for one without; or None."""

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
    """Image files below a folder, in the order of their paths; `only`: those of these paths.

    The first-level sub-folders are the classes if there are at least two and every image is inside one of them.
    """

    def __init__(self, root: Path, only: Collection[str] | None = None) -> None:
        self.root, self._only = root, only
        numbers, self._others, self._broken, self._runs = array("Q"), Counter[str](), set[str](), list[str]()
        found = PathColumn.of(self._found(numbers))
        if not len(found):
            raise DataError("; ".join([_no_images(root, self._others), *_runs_in_words(self._runs)]))
        order_N = found.order()
        self.paths = found.in_order(order_N)
        self.stamps = Stamps.of(root, self.paths, numbers, order_N)
        self.labels = _labels_from_folders(self.paths)
        self.label_note = "" if self.labels else _images_beside_folders(self.paths)
        self.class_names: list[str] | None = None

    def _found(self, numbers: array[int]) -> Iterator[str]:
        """The path of every image; what the file system says of it is added to the numbers."""
        for path, status in _walk(self.root, "", set(), self._runs):
            if self._only is not None and path not in self._only:
                continue
            broken = stat.S_ISLNK(status.st_mode)
            if is_image_name(path):
                numbers.extend(Stamps.row(status))
                self._broken.update([path] if broken else ())
                yield path
            else:
                self._others["broken link" if broken else Path(path).suffix.lower() or Path(path).name] += 1

    @property
    def passed_over(self) -> list[str]:
        """Which files are no images, or of formats that are not read: the most common kinds; and folders of runs."""
        common = sorted(self._others.items(), key=lambda item: (-item[1], item[0]))[:5]
        kinds = ", ".join(f"{count} {kind}" for kind, count in common) + ", ..." * (len(self._others) > len(common))
        others = f"{counted(self._others.total(), 'other file')} in {self.root} passed over ({kinds})"
        return [*([others] if kinds else []), *_runs_in_words(self._runs)]

    def read(self, index: int) -> bytes:
        if (size := self.stamps.size(index)) > LARGEST_FILE:
            raise OSError(f"the file has {size:,} bytes; allowed: {LARGEST_FILE:,}")
        if (path := self.paths[index]) in self._broken:
            raise BrokenLink("it is a link that leads nowhere")
        return (self.root / path).read_bytes()

    def chunks(self) -> Iterator[tuple[int, list[bytes | OSError]]]:
        return read_in_order(self)


def _no_images(root: Path, others: Counter[str]) -> str:
    """What was looked for; or, where most files are arrays, how those are given."""
    found = f"{root} holds no image file ({counted(others.total(), 'other file')})"
    common = next((kind for kind, _ in others.most_common(1)), "")
    if common in (".npy", ".npz"):
        return f"{found}; give {common} arrays as one .npz file with x of shape (N, H, W) or (N, H, W, C)"
    return f"{found}; looked for {', '.join(sorted(IMAGE_SUFFIXES))}"


def _runs_in_words(runs: Sequence[str]) -> list[str]:
    if not runs:
        return []
    names = listed(sorted(runs)[:5]) + (", ..." if len(runs) > 5 else "")
    return [f"{names}: {'a run' if len(runs) == 1 else f'{len(runs)} runs'} of echoless, passed over"]


def count_image_files(root: Path) -> int:
    return sum(is_image_name(path) for path, _ in _walk(root, "", set(), []))


def is_image_name(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in IMAGE_SUFFIXES  # noqa: PTH122 (a Path is several times as slow)


def _walk(root: Path, inside: str, seen: set[str], runs: list[str]) -> Iterator[tuple[str, os.stat_result]]:
    """(relative path, status) of every visible file, and of every link that leads nowhere: an image was meant to be
    there. A folder that links reach twice counts once. runs: gets the folders of runs, whose pictures are no data."""
    real = os.path.realpath(root / inside)
    if real in seen:
        return
    seen.add(real)
    entries = _entries(root / inside)
    if inside and is_run(entry.name for entry in entries):
        runs.append(inside)
        return
    for entry in entries:
        path = f"{inside}/{entry.name}" if inside else entry.name
        status = _status(entry)
        if status is not None and stat.S_ISDIR(status.st_mode):
            yield from _walk(root, path, seen, runs)
        elif status is not None and _is_file_or_link(status.st_mode):  # not a pipe, nor a device
            yield path, status


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """The visible entries. A folder that cannot be read is no empty one: its images, perhaps a class, would vanish."""
    try:
        found = list(os.scandir(folder))
    except OSError as error:
        raise DataError(_unreadable(str(folder), error)) from None
    return [entry for entry in found if not (entry.name.startswith(".") or entry.name in _NOT_DATA)]


def _status(entry: os.DirEntry[str]) -> os.stat_result | None:
    """Of the link itself where it leads nowhere, or to itself; None for what was deleted meanwhile."""
    try:
        return entry.stat()
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ELOOP):
            raise DataError(_unreadable(entry.path, error)) from None
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None


def _is_file_or_link(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISLNK(mode)


def _unreadable(path: str, error: OSError) -> str:
    return f"{path} cannot be read: {error.strerror or error}; make it readable, or move it away"


def _labels_from_folders(paths: Sequence[str]) -> list[str] | None:
    folders = []
    for path in paths:
        folder, inside, _ = path.partition("/")
        if not inside:
            return None
        folders.append(sys.intern(folder))  # one string for all images of a class
    return folders if len(set(folders)) > 1 else None


def _images_beside_folders(paths: Sequence[str]) -> str:
    """Why sub-folders are not the classes: images lie beside them. Nothing where there are not two of them."""
    folders: dict[str, None] = {}
    beside = 0
    for path in paths:
        folder, inside, _ = path.partition("/")
        if inside:
            folders[folder] = None
        else:
            beside += 1
    if len(folders) < 2:
        return ""
    names = listed(list(folders)[:5]) + (", ..." if len(folders) > 5 else "")
    return (
        f"the {len(folders)} sub-folders ({names}) are not used as classes, because {beside} of {len(paths)} images "
        "lie beside them; move those into a sub-folder, or away, or give --labels FILE.csv"
    )
