"""How do pieces become the file or the folder that was asked for? Joined into files of limited size, then renamed.

features.parquet    one file while the features take at most `part_bytes`; else a folder of that name with files
                    part-00000-of-00012.parquet, ..., each below that size. Readers of parquet take either.
features            always such a folder
features.csv        one column for each dimension
features.npy        the features alone; the paths are in features.paths.txt
"""

from __future__ import annotations

import csv
import io
import os
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from echoless.errors import ConfigError, NoImages, RunError
from echoless.evaluation.chart import write_chart
from echoless.evaluation.table_columns import Columns
from echoless.runtime.sharing import rank_and_world, wait
from echoless.storage import read_json_object, write_json
from echoless.storage.atomic import explained, move_into_place, new_file
from echoless.storage.owned import require_ours

PART_BYTES = 10**9  # of features in one file
PARTS = ("part-*.parquet",)
# Numbers do not repeat themselves, so that neither a dictionary nor compression saves anything.
PARQUET: dict[str, Any] = {"compression": "none", "use_dictionary": ["path", "label"]}

Report = Callable[[str, int, int], None]  # (what is being done, how many are done, of how many)


@dataclass(frozen=True)
class TableTarget:
    """Where the table goes, and how many bytes of features one parquet file holds."""

    out: Path
    overwrite: bool = False
    part_bytes: int = PART_BYTES

    @property
    def written(self) -> list[Path]:
        return [self.out, self.out.with_suffix(".paths.txt")] if self.out.suffix == ".npy" else [self.out]

    @property
    def in_parts(self) -> bool:
        """Whether it may be a folder."""
        return self.out.suffix in ("", ".parquet")


def check_target(target: TableTarget, columns: Columns) -> None:
    """Refuse before any work."""
    out = target.out
    if not target.in_parts and out.suffix not in _JOIN:
        raise ConfigError(
            f"out is {str(out)!r}; allowed: a name that ends in .parquet, .npy or .csv, or a folder, without an ending"
        )
    if len(columns.views) > 1 and not target.in_parts:
        raise ConfigError(f"out is {str(out)!r}, which holds one layer; give .parquet for {len(columns.views)} layers")
    if columns.dense and out.suffix == ".csv":
        raise ConfigError(f"out is {str(out)!r}, which holds one vector for each image; give .parquet or .npy")
    if columns.chart is not None and out.suffix == ".npy":
        raise ConfigError(f"map is {columns.chart!r}, but {str(out)!r} has no columns; give .parquet or .csv")
    with explained(out):
        out.parent.mkdir(parents=True, exist_ok=True)
    if not os.access(out.parent, os.W_OK):
        raise RunError(f"{out} cannot be written: the folder {out.parent} is read-only")
    for file in target.written:
        _check_replaceable(file, target)


def _check_replaceable(file: Path, target: TableTarget) -> None:
    folder = target.in_parts and file.is_dir()
    if not file.exists() or (folder and not any(file.iterdir())):
        return
    if not target.overwrite:
        raise RunError(f"{file} exists; give --overwrite to replace it, or another --out")
    if folder:
        require_ours(file, PARTS)
    elif not file.is_file():
        raise RunError(f"{file} cannot be written: it exists and is not a regular file")


@dataclass(frozen=True)
class Pieces:
    """Tables of a few images each, by number, in a folder; and how they are joined, once all are there."""

    folder: Path
    images: int
    images_each: int

    @property
    def count(self) -> int:
        return -(-self.images // self.images_each)

    def file(self, number: int) -> Path:
        return self.folder / f"piece-{number:06d}.parquet"

    def has(self, number: int) -> bool:
        """What cannot be read is computed again, and so is a piece that lacks an image: it may be readable now."""
        if self.plan_file.exists() and self.plan.holds(number):
            return True
        try:
            rows = pq.ParquetFile(self.file(number)).metadata.num_rows
        except Exception:
            return False
        if self.plan_file.exists():  # it has counted the rows as they are
            return True
        return bool(rows == min(self.images_each, self.images - number * self.images_each))

    def tables(self, numbers: Sequence[int] | None = None) -> Iterator[pa.Table]:
        """Those with rows, in order."""
        for number in range(self.count) if numbers is None else numbers:
            table = pq.ParquetFile(self.file(number)).read()
            if table.num_rows:
                yield table

    @property
    def plan_file(self) -> Path:
        return self.folder / "plan.json"

    @cached_property
    def plan(self) -> JoinPlan:
        return JoinPlan(self.folder, self.count, **read_json_object(self.plan_file))

    def make_plan(self, columns: Columns, part_bytes: int) -> None:
        """Once, when all pieces are there: which of them go into one file."""
        rows = [pq.ParquetFile(self.file(number)).metadata.num_rows for number in range(self.count)]
        filled = [count for count in rows if count]
        if not filled:
            raise NoImages("the data has no usable image")
        if columns.chart is not None:
            write_chart(self.folder, self.tables, sum(filled), columns.chart)
        schema = next(self.tables()).schema
        row_bytes = sum(_bytes_of(schema.field(name).type) for name in columns.names)
        each = max(1, part_bytes // (row_bytes * max(filled)))
        starts = np.cumsum([0, *filled])[:-1:each].tolist()
        empty = [number for number, count in enumerate(rows) if not count]
        write_json(self.plan_file, {"each": each, "starts": starts, "rows": sum(filled), "empty": empty})


@dataclass(frozen=True)
class JoinPlan:
    """each: pieces in one file. starts: the number of the first row of every file. rows: of all of them.

    empty: pieces without rows, because none of their images could be decoded.
    """

    folder: Path
    count: int
    each: int
    starts: list[int]
    rows: int
    empty: list[int]

    @property
    def parts(self) -> int:
        return len(self.starts)

    @cached_property
    def filled(self) -> list[int]:
        """The pieces that have rows."""
        return sorted(set(range(self.count)) - set(self.empty))

    def pieces(self, part: int) -> list[int]:
        return self.filled[part * self.each : (part + 1) * self.each]

    def holds(self, number: int) -> bool:
        """Whether nothing is missing of the piece: it is empty, or in a file that is finished."""
        return number in self.empty or self.file(bisect_left(self.filled, number) // self.each).exists()

    def file(self, part: int) -> Path:
        return self.folder / "table" / f"part-{part:05d}-of-{self.parts:05d}.parquet"


def _bytes_of(kind: pa.DataType) -> int:
    """Of one value: lists of lists of numbers."""
    return kind.list_size * _bytes_of(kind.value_type) if pa.types.is_fixed_size_list(kind) else kind.bit_width // 8


def make_table(pieces: Pieces, target: TableTarget, columns: Columns, about: dict[str, str], report: Report) -> int:
    """Returns the number of rows, in the first process; the others help to join."""
    rank, _ = rank_and_world()
    if rank == 0 and not pieces.plan_file.exists():
        pieces.make_plan(columns, target.part_bytes)
    wait()
    joined = Joined(pieces, columns, about | {"rows": str(pieces.plan.rows)})
    if target.in_parts:
        _join_parts(joined, report)
        wait()
        if rank == 0:
            _publish(pieces.plan, target)
    elif rank == 0:
        _JOIN[target.out.suffix](joined, target)
    return pieces.plan.rows if rank == 0 else 0


@dataclass(frozen=True)
class Joined:
    """The pieces as one table after the other, with what the metadata says."""

    pieces: Pieces
    columns: Columns
    about: dict[str, str]

    def part(self, part: int) -> Iterator[pa.Table]:
        plan = self.pieces.plan
        row = plan.starts[part]
        for table in self.pieces.tables(plan.pieces(part)):
            if self.columns.chart is not None:
                places_N2 = np.load(self.pieces.folder / "map.npy", mmap_mode="r")[row : row + len(table)]
                for axis, name in enumerate("xy"):
                    table = table.add_column(1 + axis, name, pa.array(np.ascontiguousarray(places_N2[:, axis])))
            row += len(table)
            yield table.replace_schema_metadata({f"echoless.{key}": text for key, text in self.about.items()})

    def tables(self) -> Iterator[pa.Table]:
        for part in range(self.pieces.plan.parts):
            yield from self.part(part)


def _join_parts(joined: Joined, report: Report) -> None:
    """Each process its own; pieces go as soon as their file is there, so that little is on the disk twice."""
    plan, (rank, world) = joined.pieces.plan, rank_and_world()
    plan.file(0).parent.mkdir(exist_ok=True)
    report("joining", 0, plan.parts)
    for part in range(rank, plan.parts, world):
        if not plan.file(part).exists():
            _write_part(joined, part)
        for number in plan.pieces(part):
            joined.pieces.file(number).unlink(missing_ok=True)
        report("joining", part + 1, plan.parts)


def _write_part(joined: Joined, part: int) -> None:
    with new_file(joined.pieces.plan.file(part)) as file, ExitStack() as stack:
        writer = None
        for table in joined.part(part):
            writer = writer or stack.enter_context(pq.ParquetWriter(file, table.schema, **PARQUET))
            writer.write_table(table)


def _publish(plan: JoinPlan, target: TableTarget) -> None:
    single = plan.parts == 1 and target.out.suffix == ".parquet"
    move_into_place(plan.file(0) if single else plan.file(0).parent, target.out)


def _join_csv(joined: Joined, target: TableTarget) -> None:
    """path, the corner of a tile or the place on a map, label where it is known, and one column per dimension."""
    writer = None
    with new_file(target.out) as file:
        text = io.TextIOWrapper(file, encoding="utf-8", newline="", write_through=True)
        for table in joined.tables():
            known = [name for name in ("path", "x", "y", "label") if name in table.schema.names]
            if writer is None:
                writer = csv.writer(text)
                size = table.schema.field("feature").type.list_size
                writer.writerow([*known, *(f"f{i}" for i in range(size))])
            columns = [table[name].to_pylist() for name in (*known, "feature")]
            writer.writerows([*words, *(f"{value:.9g}" for value in vector)] for *words, vector in zip(*columns))
        text.detach()  # the file is forced to the disk before it is closed


def _join_npy(joined: Joined, target: TableTarget) -> None:
    out, names = target.written
    (column,) = joined.columns.names
    kind = next(joined.tables()).schema.field(column).type
    shape = [joined.pieces.plan.rows]
    while pa.types.is_fixed_size_list(kind):
        shape, kind = [*shape, kind.list_size], kind.value_type
    described = np.lib.format.header_data_from_array_1_0(np.empty(0, kind.to_pandas_dtype()))
    with new_file(out) as vectors, new_file(names) as paths:
        np.lib.format.write_array_header_1_0(vectors, described | {"shape": tuple(shape)})
        for table in joined.tables():
            vectors.write(numbers_of(table[column]).data)
            for path in _names(table):  # one line for each, whatever its name
                paths.write(path.replace("\\", "\\\\").replace("\n", "\\n").encode() + b"\n")
        for file in (vectors, paths):
            file.flush()
            os.fsync(file.fileno())
        out.unlink(missing_ok=True)  # an old array beside new paths would be read as theirs


def numbers_of(column: pa.ChunkedArray | pa.Array) -> np.ndarray:
    """The numbers in lists of lists, (N, ...)."""
    lists = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    shape = [len(lists)]
    while pa.types.is_fixed_size_list(lists.type):
        shape.append(lists.type.list_size)
        lists = lists.flatten()
    return lists.to_numpy(zero_copy_only=False).reshape(shape)


def _names(part: pa.Table) -> list[str]:
    """The paths; those of tiles with their corner, as `path,x,y`."""
    columns = [part[name].to_pylist() for name in ("path", "x", "y") if name in part.column_names]
    return [",".join(map(str, row)) for row in zip(*columns)]


_JOIN: dict[str, Callable[[Joined, TableTarget], None]] = {".npy": _join_npy, ".csv": _join_csv}
