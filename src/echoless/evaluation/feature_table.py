"""What did `embed` write? One parquet file or a folder of them, with what they say of themselves.

Any parquet with a column `path` of text and a column `feature` of lists of numbers can be read; only the tables of
`embed` say which encoder made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from echoless.data.cache import gathered_on_disk
from echoless.errors import DataError
from echoless.evaluation.table_files import numbers_of

BLOCK = 131_072  # rows in memory at a time
GATHERED = 16_384  # rows in memory while all are gathered in a file
SAMPLED_GROUPS = 16
PREFIX = "echoless."
# Entries of the metadata that are numbers: kind, smallest, largest, and how the refusal says it.
_NUMBERS: dict[str, tuple[type[int] | type[float], float, float, str]] = {
    "tiles": (int, 1, 2**31, "a whole number, 1 or more"),
    "noise": (float, 0, 1, "a number from 0 to 1"),
}


class FeatureTable:
    """Vectors by row, a block at a time, with their paths and labels."""

    def __init__(self, path: str | Path, column: str = "feature") -> None:
        self.path, self.column = Path(path), column
        self._files = [_opened(file) for file in _files_of(self.path)]
        for file in self._files:
            self._check(file.schema_arrow)
        self.rows: int = sum(file.metadata.num_rows for file in self._files)
        if not self.rows:
            raise DataError(f"{self.path} holds no rows")

    def _check(self, schema: pa.Schema) -> None:
        if "path" not in schema.names or self.column not in schema.names:
            how = "with --tokens" if self.column == "tokens" else "for one layer, without --tokens"
            raise DataError(
                f"{self.path} has the columns {', '.join(schema.names)}; it must have path and {self.column}, as "
                f"`echoless embed` writes them {how}"
            )
        kind = schema.field(self.column).type
        if not _is_list(kind) or (self.column == "feature" and _is_list(kind.value_type)):
            raise DataError(f"{self.path}: the column {self.column} is {kind}; allowed: lists of numbers")

    @cached_property
    def about(self) -> dict[str, str]:
        """What `embed` says of the encoder and the images: run, encoder, layer, pooling, root, ...

        Anybody may have written it: what is to be a number is one, or the table is refused.
        """
        about = _said_by(self._files[0])
        for name, (kind, low, high, allowed) in _NUMBERS.items():
            if name in about and not _is_between(about[name], kind, low, high):
                said = about[name][:60]
                raise DataError(f"{self.path} says in its metadata that {name} is {said!r}; allowed: {allowed}")
        return about

    @cached_property
    def width(self) -> int:
        return int(self._first.shape[1])

    @cached_property
    def _first(self) -> np.ndarray:
        return next(self.blocks(1))

    def has(self, name: str) -> bool:
        return all(name in file.schema_arrow.names for file in self._files)

    def words(self, name: str) -> pa.ChunkedArray:
        """A whole column, such as path or label."""
        with self._readable():
            return pa.chunked_array([chunk for file in self._files for chunk in file.read(columns=[name])[name].chunks])

    def whole_numbers(self, name: str) -> np.ndarray:
        """A whole column of them, such as x and y of tiles."""
        column = self.words(name)
        if not pa.types.is_integer(column.type) or column.null_count:
            raise DataError(f"{self.path}: the column {name} is {column.type}; allowed: whole numbers, one in each row")
        return np.asarray(column.to_numpy(), np.int64)

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """A file that is damaged inside is refused when it is read."""
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            raise DataError(f"{self.path} cannot be read: {str(error).splitlines()[0]}") from None

    def blocks(self, size: int = BLOCK) -> Iterator[np.ndarray]:
        """All vectors, in order, (up to `size`, D) at a time."""
        width = None
        for file in self._files:
            for batch in self._batches(file, size):
                block = self._numbers(batch)
                width = width or block.shape[1]
                if block.shape[1] != width:
                    raise DataError(f"{self.path} has vectors of {width} and of {block.shape[1]} numbers")
                yield block

    def _batches(self, file: Any, size: int, row_groups: Sequence[int] | None = None) -> Iterator[pa.Array]:
        """The lists of up to `size` rows at a time."""
        with self._readable():
            for groups in _together(file, size) if row_groups is None else [row_groups]:
                for batch in file.iter_batches(batch_size=size, row_groups=groups, columns=[self.column]):
                    if len(batch):
                        yield batch.column(0)

    def sample(self, count: int) -> np.ndarray:
        """About so many vectors from all over the table, of which a few row groups are read."""
        groups = [(file, number) for file in self._files for number in range(file.num_row_groups)]
        chosen = groups[:: -(-len(groups) // SAMPLED_GROUPS)]
        rows = sum(file.metadata.row_group(number).num_rows for file, number in chosen)
        step, first, found = max(1, rows // count), 0, []
        for file, number in chosen:
            for batch in self._batches(file, 1024, [number]):
                found.append(self._numbers(batch)[-first % step :: step])
                first += len(batch)
        return np.concatenate(found)

    def at(self, rows: Sequence[int]) -> np.ndarray:
        """(I, ...) of these rows, in this order; of the files, the groups of rows that hold them are read."""
        groups = [(file, group) for file in self._files for group in range(file.metadata.num_row_groups)]
        firsts = np.cumsum([0, *(file.metadata.row_group(group).num_rows for file, group in groups)])
        group_of = np.searchsorted(firsts, rows, side="right") - 1
        found: dict[int, np.ndarray] = {}
        for number in np.unique(group_of).tolist():
            file, group = groups[number]
            with self._readable():
                column = file.read_row_group(group, columns=[self.column])[self.column]
            block = self._numbers(column.combine_chunks())
            for place in np.flatnonzero(group_of == number).tolist():
                found[place] = block[rows[place] - firsts[number]].copy()
        return np.stack([found[place] for place in range(len(rows))])

    def vectors(self) -> np.ndarray:
        """(N, D), all of them: mapped from a file where they are many, of which a block is in memory at a time."""
        found = gathered_on_disk()
        for block in self.blocks(GATHERED):
            found.add(np.ascontiguousarray(block).ravel())
            del block
            pa.default_memory_pool().release_unused()  # it would keep what the blocks before have taken
        return found.array().view(np.float32).reshape(self.rows, self.width)

    def _numbers(self, column: Any) -> np.ndarray:
        if column.null_count:
            raise DataError(f"{self.path} has rows without a {self.column}")
        if not pa.types.is_fixed_size_list(column.type):
            sizes = np.unique(np.diff(column.offsets.to_numpy()))
            if len(sizes) != 1 or sizes[0] == 0:
                raise DataError(
                    f"{self.path} has vectors of {sizes.min()} to {sizes.max()} numbers; they must be equal"
                )
            column = pa.FixedSizeListArray.from_arrays(column.flatten(), int(sizes[0]))
        return numbers_of(column).astype(np.float32, copy=False)


def metadata_of(path: str | Path) -> dict[str, str]:
    """What `embed` says in a table of its own, whichever columns it has; nothing where another tool wrote it."""
    return _said_by(_opened(_files_of(Path(path))[0]))


def _said_by(file: Any) -> dict[str, str]:
    found = file.schema_arrow.metadata or {}
    known = {key.decode(errors="replace"): value.decode(errors="replace") for key, value in found.items()}
    return {key.removeprefix(PREFIX): value for key, value in known.items() if key.startswith(PREFIX)}


def _together(file: Any, size: int) -> Iterator[list[int]]:
    """Row groups of up to `size` rows together, or one that is larger: a reader of all of them would hold them all."""
    groups: list[int] = []
    rows = 0
    for number in range(file.num_row_groups):
        more = file.metadata.row_group(number).num_rows
        if groups and rows + more > size:
            yield groups
            groups, rows = [], 0
        groups.append(number)
        rows += more
    if groups:
        yield groups


def _is_between(text: str, kind: type[int] | type[float], low: float, high: float) -> bool:
    try:
        return low <= kind(text) <= high
    except ValueError:
        return False


def _is_list(kind: pa.DataType) -> bool:
    lists = pa.types.is_fixed_size_list(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind)
    return lists and (pa.types.is_floating(kind.value_type) or _is_list(kind.value_type))


def _files_of(path: Path) -> list[Path]:
    if path.is_dir():
        if files := sorted(path.glob("*.parquet")):
            return files
        raise DataError(f"{path} holds no .parquet file; give what `echoless embed` wrote")
    if not path.is_file():
        raise DataError(f"features {str(path)!r} does not exist; give the .parquet file or folder of `echoless embed`")
    return [path]


def _opened(file: Path) -> Any:
    try:
        return pq.ParquetFile(file)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"{file} is not a readable parquet file: {error}") from None
