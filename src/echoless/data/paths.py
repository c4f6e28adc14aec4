"""How are the paths of ten million images held? As a column of bytes, or computed; never as Python strings.

A Python string of 30 letters takes 79 bytes, and its place in a list 8 more; in a column it takes 38. A large column is
kept in a file without a name, so that the operating system may drop it from memory and read it again.

Letters that are no text (bytes of a file name that are not UTF-8, as Python escapes them) survive.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, overload

import numpy as np

from echoless.data.cache import gathered_on_disk, kept_on_disk
from echoless.data.resample import Array

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 65_536  # paths that are Python strings at a time


class Paths(Sequence[str]):
    """Paths by number. A kind says how many there are, and which are from `start` to `stop`."""

    def _part(self, start: int, stop: int) -> list[str]:
        raise NotImplementedError

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"path {index} of {len(self)}")
        return self._part(place, place + 1)[0]

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _AT_ONCE):
            yield from self._part(start, min(start + _AT_ONCE, len(self)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence) or isinstance(other, str | bytes):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other))

    __hash__ = None  # type: ignore[assignment]


def paths_at(paths: Sequence[str], numbers: Array) -> list[str]:
    """Several at once, which is far cheaper than one after the other."""
    if isinstance(paths, PathColumn):
        return paths.at(numbers)
    return [paths[number] for number in numbers.tolist()]


class PathColumn(Paths):
    """Paths end to end. Encoded so that the order of the bytes is that of the strings."""

    def __init__(self, column: pa.LargeBinaryArray) -> None:
        self._column = column

    @staticmethod
    def of(paths: Iterable[str]) -> PathColumn:
        import pyarrow as pa

        left, letters, offsets, count, end = iter(paths), gathered_on_disk(), gathered_on_disk(), 0, 0
        offsets.add(np.zeros(1, np.int64))
        while block := [path.encode("utf-8", "surrogatepass") for path in islice(left, _AT_ONCE)]:
            letters.add(np.frombuffer(b"".join(block), np.uint8))
            ends_B = end + np.cumsum([len(path) for path in block])
            offsets.add(ends_B)
            count, end = count + len(block), int(ends_B[-1])
        buffers = [pa.py_buffer(each.array()) for each in (offsets, letters)]
        return PathColumn(pa.Array.from_buffers(pa.large_binary(), count, [None, *buffers]))

    def __len__(self) -> int:
        return len(self._column)

    def _part(self, start: int, stop: int) -> list[str]:
        part = self._column.slice(start, stop - start).to_pylist()
        return [path.decode("utf-8", "surrogatepass") for path in part]

    def at(self, numbers: Array) -> list[str]:
        return [path.decode("utf-8", "surrogatepass") for path in self._column.take(numbers).to_pylist()]

    def order(self) -> Array:
        """Which path comes first, second, ... as Python sorts strings."""
        import pyarrow.compute

        return np.asarray(pyarrow.compute.sort_indices(self._column)).astype(np.int64)

    def in_order(self, order_N: Array) -> PathColumn:
        return PathColumn(_moved_to_a_file(self._column.take(order_N)))

    @property
    def unique(self) -> bool:
        """By their hashes, because a table of all paths would be in memory; it is made where two hashes are equal."""
        import pyarrow.compute

        hashes_N = np.fromiter(map(hash, self), np.int64, len(self))
        hashes_N.sort()
        if bool((hashes_N[1:] != hashes_N[:-1]).all()):
            return True
        return pyarrow.compute.count_distinct(self._column).as_py() == len(self)


def _moved_to_a_file(column: pa.LargeBinaryArray) -> pa.LargeBinaryArray:
    """Equal to the column; what is large lies in files without a name."""
    import pyarrow as pa

    _, offsets, letters = column.buffers()
    if not len(column) or column.offset or letters is None:
        return column
    kept = [pa.py_buffer(kept_on_disk(np.frombuffer(buffer, np.uint8))) for buffer in (offsets, letters)]
    return pa.Array.from_buffers(pa.large_binary(), len(column), [None, *kept])


class NumberedPaths(Paths):
    """`PREFIX00000000`, `PREFIX00000001`, ...: of images that have no names."""

    def __init__(self, prefix: str, count: int) -> None:
        self._prefix, self._count = prefix, count

    def __len__(self) -> int:
        return self._count

    def _part(self, start: int, stop: int) -> list[str]:
        return [f"{self._prefix}{number:08d}" for number in range(start, stop)]


class JoinedPaths(Paths):
    """Those of several files, one file after the other."""

    def __init__(self, parts: Sequence[Paths]) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part) for part in parts])

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    def _part(self, start: int, stop: int) -> list[str]:
        found: list[str] = []
        for part, end in zip(self._parts, self._ends.tolist()):
            first = end - len(part)
            if first < stop and start < end:
                found += part._part(max(start - first, 0), min(stop, end) - first)
        return found


class ChosenPaths(Paths):
    """Some of the paths of others, or several times the same: `of[rows[i]]`."""

    def __init__(self, of: Sequence[str], rows_N: Array | Sequence[int]) -> None:
        self._of, self._rows = of, kept_on_disk(np.asarray(rows_N, dtype=np.int64))

    def __len__(self) -> int:
        return len(self._rows)

    def _part(self, start: int, stop: int) -> list[str]:
        return [self._of[row] for row in self._rows[start:stop].tolist()]
