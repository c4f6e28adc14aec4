"""What does a table of features say of an image? Its path, its features and, where they are known, label and place.

path      relative to the data, or absolute
x, y      the corner of a tile, or the place on a 2-d map of all images
feature   a list of D numbers; of several layers, one such column for each, named after the layer
tokens    instead of `feature`: the features of every patch, as rows of columns of D numbers
label     the name of the class
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa
import torch

from echoless.data import Images
from echoless.data.paths import paths_at
from echoless.errors import ConfigError, DataError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import PATCHES, Chunk, View

MOST_ON_TSNE = 20_000  # images: minutes, and ten times as many take hours

Chart = Literal["pca", "tsne"]


@dataclass(frozen=True)
class Columns:
    """views: which features. root: what is put before every path. chart: places on a map of all images."""

    views: tuple[View, ...]
    half: bool = False
    root: Path | None = None
    chart: Chart | None = None

    @property
    def dense(self) -> bool:
        """Whether every patch has its features."""
        return any(view.pooling == PATCHES for view in self.views)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the features, one for each view."""
        if len(self.views) > 1:
            return tuple(view.layer for view in self.views)
        return ("tokens" if self.dense else "feature",)

    def check(self, encoder: Encoder, images: Images) -> None:
        """Refuse before any work what cannot be."""
        for view in self.views:
            encoder.require_layer(view.layer)
            if view.layer.endswith("/key") and view.pooling != PATCHES:
                raise ConfigError(f"layer is {view.layer!r}, whose values belong to patches; give --tokens")
        if self.dense and encoder.grid is None:
            raise ConfigError(f"{encoder.name} has no grid of patch tokens, which --tokens writes")
        if self.chart is not None:
            self._check_chart(images)

    def _check_chart(self, images: Images) -> None:
        if images.corners_N2 is not None:
            raise ConfigError(f"map is {self.chart!r}, but the columns x and y hold the corners of the tiles")
        if self.dense or len(self.views) > 1:
            raise ConfigError(f"map is {self.chart!r}, which is of one vector for each image; leave --tokens out")
        if self.chart == "tsne" and not 4 <= images.usable <= MOST_ON_TSNE:
            raise ConfigError(
                f"map is 'tsne' for {images.usable:,} images; allowed: 4 to {MOST_ON_TSNE:,}, or --map pca for any "
                "number"
            )

    def table(self, images: Images, chunks: Sequence[Chunk]) -> pa.Table:
        """The rows of these chunks; none where no image of them could be decoded."""
        found = [chunk for chunk in chunks if len(chunk.ids_B)]
        if not found:
            return pa.table({"path": pa.array([], pa.string())})
        ids_N = torch.cat([chunk.ids_B for chunk in found])
        paths = [self._path(path) for path in paths_at(images.paths, ids_N.numpy())]
        columns = {"path": pa.array(paths, pa.string())}
        if images.corners_N2 is not None:
            columns |= {name: pa.array(images.corners_N2[ids_N.numpy(), axis]) for axis, name in enumerate("xy")}
        for name, view in zip(self.names, self.views):
            columns[name] = self._lists(torch.cat([chunk.features[view] for chunk in found]), view)
        if (labels := _labels(images, ids_N)) is not None:
            columns["label"] = labels
        return pa.table(columns)

    def _path(self, path: str) -> str:
        text = path if path.isascii() else as_text(path)
        return text if self.root is None else str(Path(as_text(self.root)) / text)

    def _lists(self, values: torch.Tensor, view: View) -> pa.FixedSizeListArray:
        """(N, D) as lists of D numbers, (N, rows, columns, D) as lists of lists of lists."""
        values = values.half() if self.half else values
        if not bool(values.isfinite().all()):
            raise DataError(f"the features at {view.layer} are too large for fp16; give --dtype fp32")
        lists = pa.array(values.numpy().reshape(-1))
        for size in reversed(values.shape[1:]):
            lists = pa.FixedSizeListArray.from_arrays(lists, size)
        return lists


def as_text(path: str | Path) -> str:
    """A file name may be any bytes; those that are not UTF-8 are written as \\xNN."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _labels(images: Images, ids_N: torch.Tensor) -> pa.Array | None:
    labels = images.labels_of(ids_N)
    if labels is None:
        return None
    names = images.class_names
    known = [None if label < 0 else names[label] if names else str(label) for label in labels.tolist()]
    return pa.array(known, pa.string())
