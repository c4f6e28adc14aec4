"""Where are the images of a table? Their pixels by path, from the folder or the data that `embed` read.

The table says where, and anybody may have written it. So an address that only the table names is not opened, and of
files, only regular ones are read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from echoless.config.addresses import is_remote, without_secrets
from echoless.data.cache import default_cache_dir
from echoless.data.cache_place import CachePlace
from echoless.data.decode import DecodeSettings, Undecodable, decode
from echoless.data.images import Images
from echoless.data.opening import find_source, open_images
from echoless.data.resample import Array
from echoless.data.resizing import Fit
from echoless.data.shards import fixed_part, is_local_pattern
from echoless.data.sources import LARGEST_FILE, ImageSource, read_or_error
from echoless.data.synthetic import parse_shapes
from echoless.data.tiling import PIXEL_LIMIT
from echoless.errors import EcholessError
from echoless.evaluation.extract import Report

Made = TypeVar("Made")
Corners = Sequence[Sequence[int]] | np.ndarray  # x and y of each tile in its file
_NOWHERE = -1
_LOOKED_FOR = 65_536  # paths whose numbers are in memory at a time


class Originals:
    """`about` is the metadata of the table: root, and the size of tiles. root: where the user says that they are."""

    def __init__(self, about: Mapping[str, str], root: str | None = None) -> None:
        self.root = root if root is not None else about.get("root", "")
        self._tile = int(about["tiles"]) if "tiles" in about else None
        self._named = root is not None

    @property
    def unopened(self) -> str:
        """Why the images are not read, where that is so; else nothing."""
        if self._named or not is_remote(self.root):
            return ""
        address = without_secrets(self.root)
        return f"the table says that its images are at {address}, which is not opened unasked: give --root {address}"

    def made(
        self,
        make: Callable[[Array], Made],
        paths: Sequence[str],
        corners: Corners | None = None,
        reduction: Fit | None = None,
        report: Report | None = None,
    ) -> list[Made | None]:
        """What `make` makes of each image; None where there is none. Each file is decoded once, in whatever order."""
        order = sorted(range(len(paths)), key=paths.__getitem__)
        places = None if corners is None else [corners[row] for row in order]
        found: list[Made | None] = [None] * len(paths)
        for done, pixels in enumerate(self.pixels([paths[row] for row in order], places, reduction)):
            found[order[done]] = None if pixels is None else make(pixels)
            if report is not None:
                report(done + 1, len(paths))
        return found

    def pixels(
        self, paths: Sequence[str], corners: Corners | None = None, reduction: Fit | None = None
    ) -> Iterator[Array | None]:
        """(C, H, W) of one after the other; None where it is not there any more, or cannot be decoded.

        The tiles of one file follow each other in a table: it is decoded once, and in memory until the next one is.
        """
        settings = DecodeSettings(reduction=reduction)
        if self._tile:
            settings = DecodeSettings(pixel_limit=PIXEL_LIMIT)
        before: str | None = None
        image: Array | None = None
        for place, (path, number) in enumerate(self._numbered(paths)):
            if path != before:
                before, image = path, None  # not two at a time
                image = _decoded(_bytes_of(self._folder / path) if number is None else self._read(number), settings)
            yield image if corners is None else self._cut(image, corners[place])

    def _cut(self, image: Array | None, corner: Sequence[int] | np.ndarray) -> Array | None:
        """A copy: a view would keep the whole file in memory for as long as the tile."""
        if image is None or not self._tile:
            return image
        x, y = (max(0, int(place)) for place in corner)
        tile = image[:, y : y + self._tile, x : x + self._tile]
        return tile.copy(order="K") if tile.size else None

    def _numbered(self, paths: Sequence[str]) -> Iterator[tuple[str, int | None]]:
        """Each path with its number in an archive or an array; with None where it is that of a file."""
        if not len(paths) or self._are_files(paths[0]):
            yield from ((path, None) for path in paths)
            return
        numbering, left = _Numbering([] if self._data is None else self._data.paths), iter(paths)
        while part := list(islice(left, _LOOKED_FOR)):
            numbers = numbering.of(part)
            yield from ((path, numbers.get(path, _NOWHERE)) for path in part)

    def _are_files(self, first: str) -> bool:
        """An absolute path stays as it is, wherever the root was."""
        if self.unopened or is_remote(self.root) or parse_shapes(self.root) is not None:
            return False
        return not self._folder.exists() or (self._folder / first).is_file()

    @cached_property
    def _folder(self) -> Path:
        """What the paths of files are relative to: of a pattern, what stands before its first wildcard."""
        return fixed_part(self.root) if is_local_pattern(self.root) else Path(self.root)

    def _read(self, number: int) -> Array | bytes | OSError | None:
        if number == _NOWHERE or self._data is None:
            return None
        if isinstance(self._data, Images):
            return next(iter(self._data.get([number]).pixels), None)
        return read_or_error(self._data, number)

    @cached_property
    def _data(self) -> Images | ImageSource | None:
        """Opened once, whatever is read of it; None where it is not there any more, or must not be opened."""
        if self.unopened:
            return None
        try:
            if parse_shapes(self.root) is not None or Path(self.root).suffix == ".npz":
                return open_images(self.root)
            return find_source(self.root, CachePlace("auto", default_cache_dir(), None, None))
        except EcholessError:
            return None


class _Numbering:
    """The numbers of paths. A table has the order of its images: the search for its next part goes on where it was."""

    def __init__(self, all_paths: Sequence[str]) -> None:
        self._paths, self._left = all_paths, enumerate(all_paths)

    def of(self, wanted: Sequence[str]) -> dict[str, int]:
        asked, found = set(wanted), {}
        for _ in range(2):  # to the end, and once from the start
            for number, path in self._left:
                if path in asked:
                    asked.remove(path)
                    found[path] = number
                    if not asked:
                        return found
            self._left = enumerate(self._paths)
        return found


def _bytes_of(file: Path) -> bytes | None:
    """Of a regular file: a device has no end, and a pipe waits for ever."""
    try:
        return file.read_bytes() if file.is_file() and file.stat().st_size <= LARGEST_FILE else None
    except (OSError, ValueError):  # ValueError: a name with a zero byte
        return None


def _decoded(data: Array | bytes | OSError | None, settings: DecodeSettings) -> Array | None:
    """Pixels that are decoded already stay as they are."""
    if not isinstance(data, bytes):
        return data if isinstance(data, np.ndarray) else None
    try:
        return decode(data, settings)
    except Undecodable:
        return None
