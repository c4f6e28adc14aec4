"""How are images read from Arrow files, as `save_to_disk` of Hugging Face datasets writes them? (pyarrow alone.)

The columns are those of its parquet files (`parquet`). Files are memory-mapped: a row is read where it lies.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from echoless.data.content import stamp
from echoless.data.labels import known_labels
from echoless.data.parquet import class_names_of, columns_of, has_field, present
from echoless.data.paths import JoinedPaths, NumberedPaths, PathColumn, Paths
from echoless.data.remote import RemoteFile
from echoless.data.sources import read_in_order
from echoless.errors import DataError, NoImages


class ArrowSource:
    """The rows of one or more Arrow files, in the order of the files."""

    def __init__(self, files: Sequence[Path | RemoteFile]) -> None:
        self.stamps = [stamp(file) for file in files]
        tables = [_open(file) for file in files]
        image, label = columns_of(files[0], tables[0].schema)
        for file, table in zip(files, tables):
            if columns_of(file, table.schema) != (image, label):
                raise DataError(f"{file} and {files[0]} have different columns; they must be equal")
        # One entry per record batch: its images, and the number of its first one.
        self._batches = [batch.column(image) for table in tables for batch in table.to_batches()]
        self._first = list(accumulate(map(len, self._batches), initial=0))
        if self._first[-1] == 0:
            raise NoImages(f"{files[0]} holds no rows, so no image")
        self.paths = self._read_paths(files, [table.num_rows for table in tables])
        labels = [value for table in tables for value in table.column(label).to_pylist()] if label else None
        self.labels = None if labels is None else known_labels(labels)
        self.class_names = class_names_of(tables[0].schema, label)

    def read(self, index: int) -> bytes:
        batch = bisect_right(self._first, index) - 1
        return present(self._batches[batch].field("bytes")[index - self._first[batch]].as_py())

    def chunks(self) -> Iterator[tuple[int, list[bytes | OSError]]]:
        return read_in_order(self)

    def _read_paths(self, files: Sequence[Path | RemoteFile], rows: list[int]) -> Paths:
        """The data's own names if every image has one of its own, else file and row."""
        names = PathColumn.of(self._own_names())
        if len(names) == self._first[-1] and names.unique:
            return names
        return JoinedPaths([NumberedPaths(f"{file.name}/", count) for file, count in zip(files, rows)])

    def _own_names(self) -> Iterator[str]:
        """Up to the first image that has none."""
        for batch in self._batches:
            if not has_field(batch.type, "path"):
                return
            for name in batch.field("path").to_pylist():
                if name is None:
                    return
                yield name


def _open(file: Path | RemoteFile) -> Any:
    """Both formats of Arrow files: the stream that `save_to_disk` writes, and the one with a footer."""
    import pyarrow as pa

    mapped = pa.memory_map(os.fspath(file))
    try:
        return pa.ipc.open_stream(mapped).read_all()
    except (OSError, ValueError):  # ArrowInvalid is a ValueError
        mapped.seek(0)
    try:
        return pa.ipc.open_file(mapped).read_all()
    except (OSError, ValueError) as error:
        raise DataError(f"{file} is not a readable Arrow file: {error}") from None
