"""How is a large image cut into tiles, and which tile has which number?

Tiles are squares on a grid that begins in the upper left corner. The last column and the last row are moved inwards, so
that every tile is whole and every pixel is in one: there they overlap their neighbours. A side that is shorter than a
tile gives one tile of that length. Tiles are numbered file by file, row by row.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from echoless.config.counts import counted
from echoless.data.content import DIGEST_BYTES, Content, digest
from echoless.data.images import BadSample, Fetched
from echoless.data.resample import Array
from echoless.errors import RunError
from echoless.storage import write_bytes
from echoless.storage.seal import sealed, unsealed

PIXEL_LIMIT = 400_000_000  # of one file: a decoded file is in memory while it is cut
_FILES_AT_HAND = 2


def starts(length: int, size: int) -> list[int]:
    """Where the tiles of one axis begin."""
    if length <= size:
        return [0]
    return [*range(0, length - size, size), length - size]


def corners(shape: Sequence[int], size: int) -> list[tuple[int, int]]:
    """x and y of every tile of an image of this height and width."""
    height, width = shape
    return [(x, y) for y in starts(height, size) for x in starts(width, size)]


@dataclass(frozen=True)
class Tiling:
    """`file_N`: which file each tile is of; `corners_N2`: its x and y there, in pixels."""

    size: int
    file_N: Array
    corners_N2: Array

    @staticmethod
    def of(shapes_F2: Array, size: int) -> Tiling:
        """For files of these heights and widths; one that is unreadable (0 x 0) has one tile, which is bad."""
        rows = [(file, *corner) for file, shape in enumerate(shapes_F2.tolist()) for corner in corners(shape, size)]
        table = np.array(rows, dtype=np.int64).reshape(-1, 3)
        return Tiling(size, table[:, 0], table[:, 1:])

    def note(self, shapes_F2: Array) -> str:
        """What happens to images that are smaller than a tile; nothing where there are none."""
        size, read = self.size, shapes_F2[shapes_F2.min(axis=1) > 0]
        if len(read) and int(read.max()) <= size:
            return (
                f"tiles: no image is larger than {size} x {size}, so none is cut: each is one tile, as large as it is"
            )
        small = int((read < size).any(axis=1).sum())
        if not small:
            return ""
        return (
            f"tiles: {small} of {counted(len(shapes_F2), 'image')} have a side shorter than {size}, which is not cut: "
            "their tiles are smaller, and seen at another scale than the others"
        )

    def content(self, files: Content) -> Content:
        """The identity of the tiles: that of their files, with their places."""
        whole = files.digests_ND[self.file_N].tobytes()
        places = np.concatenate([self.corners_N2, np.full((len(self.file_N), 1), self.size)], axis=1).astype("<i8")
        parts = [
            hashlib.sha256(whole[i * DIGEST_BYTES : (i + 1) * DIGEST_BYTES] + place.tobytes()).digest()[:DIGEST_BYTES]
            for i, place in enumerate(places)
        ]
        table = np.frombuffer(b"".join(parts), np.uint8).reshape(-1, DIGEST_BYTES)
        return Content(digest([files.fingerprint, f"tiles {self.size}"]), table)

    def numbers(self, file: int) -> range:
        """The tiles of one file."""
        first, end = np.searchsorted(self.file_N, [file, file + 1])
        return range(int(first), int(end))

    def cut(self, number: int, image: Array | BadSample) -> Array | BadSample:
        """One tile of its decoded file."""
        if isinstance(image, BadSample):
            return BadSample(number, image.path, image.reason)
        x, y = self.corners_N2[number]
        tile = image[:, y : y + self.size, x : x + self.size]
        return tile if tile.size else BadSample(number, "", "the image is smaller than its header says")


class TilesOnDemand:
    """Tiles cut when they are asked for. Files in order are decoded once; in random order, once for every tile."""

    def __init__(self, tiling: Tiling, decode_file: Callable[[int], Array | BadSample]) -> None:
        self._tiling, self._decode = tiling, decode_file
        self._at_hand: OrderedDict[int, Array | BadSample] = OrderedDict()
        self._turn = threading.Lock()  # several decoded files would fill the memory

    def fetch(self, ids: Array) -> Fetched:
        with self._turn:
            return [self._tile(int(number)) for number in ids]

    def _tile(self, number: int) -> Array | BadSample:
        """A copy: a view would keep the whole file in memory for as long as the tile."""
        tile = self._tiling.cut(number, self._file(int(self._tiling.file_N[number])))
        return tile if isinstance(tile, BadSample) else tile.copy(order="K")

    def _file(self, file: int) -> Array | BadSample:
        if file not in self._at_hand:
            while len(self._at_hand) >= _FILES_AT_HAND:
                self._at_hand.popitem(last=False)
            self._at_hand[file] = self._decode(file)
        return self._at_hand[file]


def remembered_shapes(root: Path, key: str, count: int, measure: Callable[[], list[tuple[int, int] | None]]) -> Array:
    """Heights and widths of all files (F, 2): measured once, then kept beside the hashes of their content.

    key: what decides them, the files and their decoders. A file that cannot be read (None) may be readable tomorrow:
    then nothing is kept.
    """
    place = root / "content" / f"{key[:32]}.shapes"
    with suppress(OSError):
        kept = unsealed(place.read_bytes())
        if kept is not None and len(kept) == count * 2 * 8:
            return np.frombuffer(kept, "<i8").reshape(count, 2)
    measured = measure()
    shapes = np.array([shape or (0, 0) for shape in measured], dtype=np.int64).reshape(-1, 2)
    if None in measured:
        return shapes
    with suppress(OSError, RunError):  # a full or read-only disk is no error
        place.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(place, sealed(shapes.astype("<i8").tobytes()))
    return shapes
