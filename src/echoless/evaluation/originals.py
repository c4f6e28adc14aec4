"""Where are the images of a table? Their pixels by path, from the folder or the data that `embed` read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from echoless.config.addresses import is_remote
from echoless.data.cache import default_cache_dir
from echoless.data.cache_place import CachePlace
from echoless.data.decode import DecodeSettings, Undecodable, decode
from echoless.data.opening import find_source, open_images
from echoless.data.resample import Array
from echoless.data.resizing import Fit
from echoless.data.sources import read_or_error
from echoless.data.synthetic import parse_shapes
from echoless.errors import EcholessError

Corner = tuple[int, int]  # x and y of a tile in its file


class Originals:
    """`about` is the metadata of the table: root, and the size of tiles where there are any."""

    def __init__(self, about: dict[str, str]) -> None:
        self.root = about.get("root", "")
        self._tile = int(about["tiles"]) if "tiles" in about else None

    def pixels(
        self, paths: Sequence[str], corners: Sequence[Corner] | None = None, reduction: Fit | None = None
    ) -> Iterator[Array | None]:
        """(C, H, W) of one after the other; None where it is not there any more, or cannot be decoded."""
        settings = DecodeSettings(reduction=None if self._tile else reduction)
        read = self._reader(paths, settings)
        for place, path in enumerate(paths):
            image = read(path)
            if image is not None and self._tile and corners is not None:
                x, y = corners[place]
                image = image[:, y : y + self._tile, x : x + self._tile]
            yield image

    def _reader(self, paths: Sequence[str], settings: DecodeSettings) -> Callable[[str], Array | None]:
        root = Path(self.root)
        drawn = parse_shapes(self.root) is not None
        elsewhere = drawn or is_remote(self.root)
        if not elsewhere and (not root.exists() or (paths and (root / paths[0]).is_file())):
            return lambda path: _decoded(_bytes_of(root / path), settings)  # an absolute path stays as it is
        try:
            if drawn or root.suffix == ".npz":
                images = open_images(self.root)
                numbers = _numbers(images.paths, paths)
                return lambda path: next(iter(images.get([numbers[path]]).pixels), None) if path in numbers else None
            source = find_source(self.root, CachePlace("auto", default_cache_dir(), None, None))
        except EcholessError:
            return lambda path: None
        numbers = _numbers(source.paths, paths)
        return lambda path: _decoded(read_or_error(source, numbers[path]) if path in numbers else None, settings)


def _numbers(all_paths: Sequence[str], wanted: Sequence[str]) -> dict[str, int]:
    asked = set(wanted)
    return {path: number for number, path in enumerate(all_paths) if path in asked}


def _bytes_of(file: Path) -> bytes | None:
    try:
        return file.read_bytes()
    except OSError:
        return None


def _decoded(data: bytes | OSError | None, settings: DecodeSettings) -> Array | None:
    if not isinstance(data, bytes):
        return None
    try:
        return decode(data, settings)
    except Undecodable:
        return None
