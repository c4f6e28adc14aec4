"""Which images are nearest to a query, copies of each other, or unlike all others? Lists, as tables of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from echoless.data.paths import PathColumn
from echoless.errors import DataError
from echoless.evaluation.approximate import approximate_neighbours
from echoless.evaluation.duplicates import Duplicates, coarse, find_duplicates, signatures_of
from echoless.evaluation.extract import Report
from echoless.evaluation.feature_table import BLOCK, FeatureTable
from echoless.evaluation.originals import Originals
from echoless.evaluation.queries import Query, encode, encoder_of, query_files, read_queries
from echoless.measures import (
    duplicate_groups,
    nearest_in_blocks,
    nearest_others,
    outlier_scores,
    without_self,
)

MOST_COMPARISONS = 10**12  # of queries with rows: all pairs of a million; hours on a few cores
CANDIDATES = 20  # nearest neighbours of an image among which its copies are looked for


@dataclass(frozen=True)
class Neighbours:
    """similarities and rows of the table, (M, K), nearest first, for each query by its name."""

    names: list[str]
    values_MK: Tensor
    rows_MK: Tensor
    queries: list[Query] | None = None  # files, or tiles of them; None: they are rows of the table
    own: tuple[int, ...] = ()  # those rows
    how: str = "exact"
    left_out: Mapping[Path, str] = field(default_factory=dict)  # files of a folder that cannot be used, and why


@dataclass(frozen=True)
class Outliers:
    """Rows and their mean cosine distance to the nearest others, the largest first."""

    rows_N: Tensor
    distances_N: Tensor
    how: str = "exact"


def place_in_words(path: str, corner: Sequence[int] | np.ndarray | None) -> str:
    """A path; of a tile, with the corner where it begins."""
    return path if corner is None else f"{path} at {corner[0]},{corner[1]}"


class Searcher:
    """A table of features, and how it is searched. engine: auto, exact or faiss. root: where the images are now."""

    def __init__(self, table: FeatureTable, engine: str = "auto", root: str | None = None) -> None:
        self.table, self.engine = table, engine
        self.originals = Originals(table.about, root)

    @cached_property
    def paths(self) -> PathColumn:
        return PathColumn.of(str(path) for chunk in self.table.words("path").chunks for path in chunk)

    @cached_property
    def labels(self) -> pa.ChunkedArray | None:
        if not self.table.has("label"):
            return None
        try:
            return self.table.words("label").cast(pa.string())
        except pa.ArrowException:
            kind = self.table.words("label").type
            raise DataError(f"{self.table.path}: the column label is {kind}; allowed: text or numbers") from None

    @property
    def tile(self) -> int | None:
        """The side of the tiles that the images were cut into; None for whole images."""
        return int(self.table.about["tiles"]) if "tiles" in self.table.about else None

    @cached_property
    def corners(self) -> np.ndarray | None:
        """(N, 2): where each tile begins in its file; None for whole images."""
        if self.tile is None or not (self.table.has("x") and self.table.has("y")):
            return None
        return np.stack([self.table.whole_numbers(axis) for axis in "xy"], axis=1)

    @cached_property
    def _vectors(self) -> np.ndarray:
        return self.table.vectors()

    def neighbours(self, query: str, k: int, encoder: str | None, device: str) -> Neighbours:
        """Of an image file, of the images of a folder, or of a path in the table, which is then left out."""
        if not Path(query).exists():
            return self._neighbours_of_row(query, k)
        files = query_files(Path(query))
        model = encoder_of(self.table, encoder, device)
        left_out: dict[Path, str] | None = {} if Path(query).is_dir() else None
        asked, vectors_MD = encode(model, read_queries(model, files, self.tile, left_out), self.table)
        values, rows, how = self._nearest(self.table.blocks, vectors_MD, k)
        inside = Path(query) if Path(query).is_dir() else None
        names = [
            place_in_words(str(file if inside is None else file.relative_to(inside)), corner) for file, corner in asked
        ]
        return Neighbours(names, values, rows, asked, how=how, left_out=left_out or {})

    def _neighbours_of_row(self, path: str, k: int) -> Neighbours:
        meant = Path(path).as_posix()  # without ./, which a name that begins with a dash may be given
        own = [row for row, known in enumerate(self.paths) if known in (path, meant)]
        if not own:
            raise DataError(f"query {path!r} is no file or folder, and no path in {self.table.path}")
        k = min(k, self.table.rows - 1)
        values_MK, rows_MK, how = self._nearest(self.table.blocks, self.table.at(own), k + 1)
        values_MK, rows_MK = without_self(values_MK, rows_MK, torch.tensor(own))
        names = [place_in_words(path, None if self.corners is None else self.corners[row]) for row in own]
        return Neighbours(names, values_MK, rows_MK, None, tuple(own), how)

    def _nearest(
        self, blocks: Callable[[], Iterator[np.ndarray]], queries_MD: np.ndarray, k: int
    ) -> tuple[Tensor, Tensor, str]:
        if not self._by_faiss(len(queries_MD)):
            return *nearest_in_blocks(blocks(), queries_MD, k), "exact"
        found = approximate_neighbours(blocks, self.table.rows, lambda: iter([queries_MD]), min(k, self.table.rows))
        return found.values_MK, found.rows_MK, _described(found.recall)

    def _by_faiss(self, queries: int) -> bool:
        return self.engine == "faiss" or (self.engine == "auto" and queries * self.table.rows > MOST_COMPARISONS)

    def _nearest_others(self, vectors_ND: np.ndarray, k: int) -> tuple[Tensor, Tensor, str]:
        k = min(k, len(vectors_ND) - 1)
        if not self._by_faiss(len(vectors_ND)):
            return *nearest_others(vectors_ND, k), "exact"
        blocks = partial(_blocks, vectors_ND)
        found = approximate_neighbours(blocks, len(vectors_ND), blocks, k + 1)
        return *without_self(found.values_MK, found.rows_MK, torch.arange(len(vectors_ND))), _described(found.recall)

    def duplicates(self, threshold: float | None, by: str, report: Report | None = None) -> tuple[Duplicates, str]:
        """Near-duplicates by pixels, or by features alone; and how the candidates were found."""
        if by == "features":
            assert threshold is not None
            values_NK, rows_NK, how = self._nearest_others(self._vectors, CANDIDATES)
            groups = duplicate_groups(values_NK, rows_NK, threshold)
            return Duplicates(groups, values_NK[:, 0], threshold), how
        signatures_NS = signatures_of(self.originals, self.paths, self.corners, report)
        _, rows_NK, how = self._nearest_others(coarse(signatures_NS), CANDIDATES)
        found = find_duplicates(signatures_NS, rows_NK, self.originals, self.paths, self.corners, threshold=threshold)
        return found, how

    def outliers(self, k: int) -> Outliers:
        """All rows, the least similar to their k nearest others first."""
        values_NK, _, how = self._nearest_others(self._vectors, k)
        distances_N, rows_N = outlier_scores(values_NK).sort(descending=True, stable=True)
        return Outliers(rows_N, distances_N, how)

    # The same as tables.

    def neighbours_table(self, found: Neighbours) -> pa.Table:
        rows = found.rows_MK.flatten().tolist()
        each = found.rows_MK.shape[1]
        return self._table(
            rows,
            query=pa.array([name for name in found.names for _ in range(each)]),
            rank=pa.array([rank for _ in found.names for rank in range(1, each + 1)]),
            similarity=pa.array(found.values_MK.flatten().numpy()),
        )

    def duplicates_table(self, found: Duplicates) -> pa.Table:
        rows = [row for group in found.groups for row in group]
        return self._table(
            rows,
            group=pa.array([number for number, group in enumerate(found.groups, start=1) for _ in group], pa.int64()),
            agreement=pa.array(found.agreement_N[rows].numpy()),
        )

    def outliers_table(self, found: Outliers) -> pa.Table:
        rows = found.rows_N.tolist()
        return self._table(rows, rank=pa.array(range(1, len(rows) + 1)), distance=pa.array(found.distances_N.numpy()))

    def _table(self, rows: Sequence[int], **columns: pa.Array) -> pa.Table:
        columns["path"] = pa.array(self.paths.at(np.asarray(rows, np.int64)), pa.string())
        if self.corners is not None:
            for axis, name in enumerate("xy"):
                columns[name] = pa.array(self.corners[np.asarray(rows, np.int64), axis])
        if self.labels is not None:
            columns["label"] = self.labels.take(pa.array(rows, pa.int64()))
        return pa.table(columns)


def _described(recall: float) -> str:
    return f"faiss, {100 * recall:.1f} % of the true neighbours of a few rows were found"


def _blocks(vectors_ND: np.ndarray) -> Iterator[np.ndarray]:
    for start in range(0, len(vectors_ND), BLOCK):
        yield vectors_ND[start : start + BLOCK]
