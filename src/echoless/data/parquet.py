"""How are images read from parquet files in the Hugging Face layout? (pyarrow alone.)

The image column is a struct with a binary field `bytes`; a label column of integers or strings and the class names in
the schema's metadata are optional. Files are memory-mapped; a random read decodes the row group it falls into, and the
last few row groups are kept.
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from echoless.data.content import stamp
from echoless.data.paths import JoinedPaths, NumberedPaths, PathColumn, Paths
from echoless.data.sources import CHUNK
from echoless.errors import DataError

_KEPT_BYTES = 64 * 2**20
_LABEL_NAMES = ("label", "labels", "fine_label", "class", "target")


class ParquetSource:
    """The rows of one or more parquet files, in the order of the files."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self.stamps = [stamp(file) for file in files]
        self._tables = [_open(file) for file in files]
        self._image, self._label = _columns(files[0], self._tables[0].schema_arrow)
        for file, table in zip(files, self._tables):
            if _columns(file, table.schema_arrow) != (self._image, self._label):
                raise DataError(f"{file} and {files[0]} have different columns; they must be equal")
        # One entry per row group: where it is, and the number of its first image.
        self._groups = [(f, g) for f, table in enumerate(self._tables) for g in range(table.num_row_groups)]
        sizes = [self._tables[f].metadata.row_group(g).num_rows for f, g in self._groups]
        self._first = list(accumulate(sizes, initial=0))
        if self._first[-1] == 0:
            raise DataError(f"{files[0]} holds no rows, so no image")
        self.paths = self._read_paths()
        self.labels = self._read_labels()
        self.class_names = _class_names(self._tables[0].schema_arrow, self._label)
        self._lock = threading.Lock()
        self._kept: OrderedDict[int, Any] = OrderedDict()  # arrays of pyarrow: a row becomes bytes when it is asked for

    def read(self, index: int) -> bytes:
        group = bisect_right(self._first, index) - 1
        with self._lock:
            rows = self._rows(group)
        return _present(rows[index - self._first[group]].as_py())

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
            table = self._tables[file].read_row_group(number, columns=[f"{self._image}.bytes"])
            self._kept[group] = table.column(0).combine_chunks().field("bytes")
        self._kept.move_to_end(group)
        while len(self._kept) > 2 and self._kept_bytes() > _KEPT_BYTES:
            self._kept.popitem(last=False)
        return self._kept[group]

    def _kept_bytes(self) -> int:
        return sum(
            self._tables[f].metadata.row_group(g).total_byte_size for f, g in map(self._groups.__getitem__, self._kept)
        )

    def _read_paths(self) -> Paths:
        """The data's own names if every image has one of its own, else file and row."""
        names = PathColumn.of(self._own_names())
        if len(names) == self._first[-1] and names.unique:
            return names
        rows = [table.metadata.num_rows for table in self._tables]
        return JoinedPaths([NumberedPaths(f"{file.name}/", count) for file, count in zip(self._files, rows)])

    def _own_names(self) -> Iterator[str]:
        """Up to the first image that has none."""
        for table in self._tables:
            if not _has_field(table.schema_arrow, self._image, "path"):
                return
            for batch in table.iter_batches(columns=[f"{self._image}.path"]):
                for name in batch.column(0).field("path").to_pylist():
                    if name is None:
                        return
                    yield name

    def _read_labels(self) -> list[int | str] | None:
        if self._label is None:
            return None
        labels = [v for table in self._tables for v in table.read(columns=[self._label]).column(0).to_pylist()]
        return None if None in labels or all(label == -1 for label in labels) else labels


def _open(file: Path) -> Any:
    import pyarrow.parquet

    try:
        return pyarrow.parquet.ParquetFile(file, memory_map=True)
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"{file} is not a readable parquet file: {error}") from None


def _columns(file: Path, schema: Any) -> tuple[str, str | None]:
    import pyarrow.types as types

    images = [field.name for field in schema if _has_field(schema, field.name, "bytes")]
    if len(images) != 1:
        found = ", ".join(f"{field.name}: {field.type}" for field in schema)
        raise DataError(
            f"{file} has the columns {found}; allowed: exactly one struct with a field 'bytes' for the image"
        )
    labels = [
        field.name
        for field in schema
        if field.name in _LABEL_NAMES and (types.is_integer(field.type) or types.is_string(field.type))
    ]
    return images[0], labels[0] if labels else None


def _has_field(schema: Any, column: str, name: str) -> bool:
    import pyarrow.types as types

    kind = schema.field(column).type
    return types.is_struct(kind) and any(kind.field(i).name == name for i in range(kind.num_fields))


def _class_names(schema: Any, label: str | None) -> list[str] | None:
    try:
        names = json.loads(schema.metadata[b"huggingface"])["info"]["features"][label]["names"]
    # Absent, or in a form of its own: the labels then name themselves.
    except (KeyError, TypeError, ValueError):
        return None
    return [str(name) for name in names] if isinstance(names, list) else None


def _present(row: bytes | None) -> bytes:
    if row is None:
        raise OSError("the row has no image bytes")
    return row
