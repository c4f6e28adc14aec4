"""How are images read from parquet files in the Hugging Face layout? (pyarrow alone.)

The image column is a struct with a binary field `bytes`; a label column of integers or strings and the class names in
the schema's metadata are optional. Files are memory-mapped; a random read decodes the row group it falls into, and the
last few row groups are kept.
"""

from __future__ import annotations

import json
import os
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import IO, Any

from echoless.data.content import stamp
from echoless.data.labels import known_labels
from echoless.data.paths import JoinedPaths, NumberedPaths, PathColumn, Paths
from echoless.data.remote import RemoteFile
from echoless.data.sources import CHUNK
from echoless.errors import DataError, NoImages

_KEPT_BYTES = 64 * 2**20
_LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")


class ParquetSource:
    """The rows of one or more parquet files, in the order of the files."""

    def __init__(self, files: Sequence[Path | RemoteFile]) -> None:
        self._files = files
        self.stamps = [stamp(file) for file in files]
        self._tables = [_open(file) if isinstance(file, Path) else None for file in files]
        schema = self._table(0).schema_arrow
        self._image, self._label = columns_of(files[0], schema)
        # One entry per row group: where it is, and the number of its first image.
        self._groups: list[tuple[int, int]] = []
        sizes: list[int] = []
        for number, file in enumerate(files):
            table = self._table(number)
            if columns_of(file, table.schema_arrow) != (self._image, self._label):
                raise DataError(f"{file} and {files[0]} have different columns; they must be equal")
            self._groups += [(number, group) for group in range(table.num_row_groups)]
            sizes += [table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)]
        self._first = list(accumulate(sizes, initial=0))
        if self._first[-1] == 0:
            raise NoImages(f"{files[0]} holds no rows, so no image")
        self.paths = self._read_paths()
        self.labels = self._read_labels()
        self.class_names = class_names_of(schema, self._label)
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Any] = OrderedDict()  # arrays of pyarrow: a row becomes bytes when it is asked for

    def read(self, index: int) -> bytes:
        group = bisect_right(self._first, index) - 1
        with self._lock:
            rows = self._rows(group)
        return present(rows[index - self._first[group]].as_py())

    def chunks(self) -> Iterator[tuple[int, list[bytes | OSError]]]:
        start = 0
        for table in (_open(file) for file in self._files):
            for batch in table.iter_batches(batch_size=CHUNK, columns=[f"{self._image}.bytes"]):
                rows = batch.column(0).field("bytes").to_pylist()
                yield start, [row if row is not None else OSError("the row has no image bytes") for row in rows]
                start += len(rows)

    def _rows(self, group: int) -> Any:
        if group not in self._kept:
            file, number = self._groups[group]
            table = self._whole(file).read_row_group(number, columns=[f"{self._image}.bytes"])
            self._kept[group] = table.column(0).combine_chunks().field("bytes")
            while len(self._kept) > 2 and sum(rows.nbytes for rows in self._kept.values()) > _KEPT_BYTES:
                self._kept.popitem(last=False)
        self._kept.move_to_end(group)
        return self._kept[group]

    def _table(self, number: int) -> Any:
        """The file, for everything but its images: of a remote one, what is remembered of it."""
        return self._tables[number] or _open_index(self._files[number])

    def _whole(self, number: int) -> Any:
        """The file with its images; a remote one from its copy, if there is room for that."""
        file = self._files[number]
        return _open(file.nearest() or file.open()) if isinstance(file, RemoteFile) else self._tables[number]

    def _read_paths(self) -> Paths:
        """The data's own names if every image has one of its own, else file and row."""
        names = PathColumn.of(self._own_names())
        if len(names) == self._first[-1] and names.unique:
            return names
        rows = [self._table(number).metadata.num_rows for number in range(len(self._files))]
        return JoinedPaths([NumberedPaths(f"{file.name}/", count) for file, count in zip(self._files, rows)])

    def _own_names(self) -> Iterator[str]:
        """Up to the first image that has none."""
        for table in map(self._table, range(len(self._files))):
            if not has_field(table.schema_arrow.field(self._image).type, "path"):
                return
            for batch in table.iter_batches(columns=[f"{self._image}.path"]):
                for name in batch.column(0).field("path").to_pylist():
                    if name is None:
                        return
                    yield name

    def _read_labels(self) -> list[int | str | None] | None:
        if self._label is None:
            return None
        tables = map(self._table, range(len(self._files)))
        return known_labels([v for table in tables for v in table.read(columns=[self._label]).column(0).to_pylist()])


def _open(file: Path | RemoteFile | IO[bytes]) -> Any:
    import pyarrow.parquet

    try:
        opened = os.fspath(file) if isinstance(file, os.PathLike) else file
        return pyarrow.parquet.ParquetFile(opened, memory_map=True)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"{file} is not a readable parquet file: {error}") from None


def _open_index(file: Path | RemoteFile) -> Any:
    """The table without the bytes of its images, with the same row groups; remembered, so that it is read once."""
    import pyarrow as pa
    import pyarrow.parquet

    assert isinstance(file, RemoteFile)
    return pyarrow.parquet.ParquetFile(
        pa.BufferReader(file.remembered("parquet", lambda: _make_index(_open(file), file)))
    )


def _make_index(whole: Any, file: RemoteFile) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet

    image, label = columns_of(file, whole.schema_arrow)
    schema = pa.schema([f for f in whole.schema_arrow if f.name in (image, label)], whole.schema_arrow.metadata)
    wanted = [f"{image}.path"] if has_field(schema.field(image).type, "path") else []
    sink = pa.BufferOutputStream()
    with pyarrow.parquet.ParquetWriter(sink, schema, compression="zstd") as writer:
        for group in range(whole.num_row_groups):
            kept = whole.read_row_group(group, columns=[*wanted, *([label] if label else [])])
            rows = whole.metadata.row_group(group).num_rows
            names = kept.column(image).combine_chunks().field("path") if wanted else None
            parts = [
                pa.nulls(rows, part.type) if names is None or part.name != "path" else names
                for part in schema.field(image).type
            ]
            images = pa.StructArray.from_arrays(parts, fields=list(schema.field(image).type))
            columns = [images if field.name == image else kept.column(field.name) for field in schema]
            writer.write_table(pa.table(columns, schema=schema), row_group_size=max(rows, 1))
    return sink.getvalue().to_pybytes()


def columns_of(file: Path | RemoteFile, schema: Any) -> tuple[str, str | None]:
    import pyarrow.types as types

    images = [field.name for field in schema if has_field(schema.field(field.name).type, "bytes")]
    if len(images) != 1:
        found = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise DataError(
            f"{file} has the columns {found}; the image must be the only struct with a field 'bytes', as "
            "datasets.Image() of Hugging Face writes it; its label is a column called label"
        )
    labels = [
        field.name
        for field in schema
        if field.name in _LABEL_NAMES and (types.is_integer(field.type) or types.is_string(field.type))
    ]
    return images[0], labels[0] if labels else None


def has_field(kind: Any, name: str) -> bool:
    import pyarrow.types as types

    return types.is_struct(kind) and any(kind.field(i).name == name for i in range(kind.num_fields))


def class_names_of(schema: Any, label: str | None) -> list[str] | None:
    try:
        names = json.loads(schema.metadata[b"huggingface"])["info"]["features"][label]["names"]
    # Absent, or in a form of its own: the labels then name themselves.
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def present(row: bytes | None) -> bytes:
    if row is None:
        raise OSError("the row has no image bytes")
    return row
