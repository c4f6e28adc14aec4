"""Which patch features are known already? Those that `embed --tokens` wrote for the same encoder and the same images.

A file says of itself which encoder made it, of which images and layers. Rows are found by the paths of their images,
so that a file of a whole set serves an evaluation of a part of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from echoless.data import Images
from echoless.data.paths import paths_at
from echoless.errors import DataError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.feature_table import FeatureTable, metadata_of
from echoless.evaluation.table_columns import as_text


class StoredPatches:
    """A table of `embed --tokens`: the patch features of one encoder for one set of images, by layer."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.about = Path(path), metadata_of(path)
        if self.about.get("pooling") != "patches":
            raise DataError(f"{path} holds no features of patches; give what `echoless embed --tokens` wrote")
        self.layers = self.about.get("layer", "").split(",")
        self._root = Path(self.about.get("root", "")) if self.about.get("paths") == "absolute" else None

    def is_of(self, encoder: Encoder, images: Images) -> bool:
        made_by, made_of = self.about.get("encoder"), self.about.get("data")
        return bool(made_by) and made_by == encoder.fingerprint and made_of == images.fingerprint

    def tokens(self, encoder: Encoder, images: Images, ids: Sequence[int], layer: str) -> Tensor:
        """(I, P, D), of these images."""
        assert encoder.grid is not None
        table = FeatureTable(self.path, column=layer if len(self.layers) > 1 else "tokens")
        values = torch.from_numpy(table.at(self._rows(table, images, ids)))
        if values.ndim != 4 or values.shape[1:3] != encoder.grid:
            raise DataError(
                f"{self.path} holds arrays of {tuple(values.shape[1:])} for each image at {layer}; expected: "
                f"{encoder.grid[0]} rows of {encoder.grid[1]} patches"
            )
        return values.flatten(1, 2)

    def _rows(self, table: FeatureTable, images: Images, ids: Sequence[int]) -> list[int]:
        names = [as_text(path) for path in paths_at(images.paths, np.asarray(ids))]
        wanted = pa.array([name if self._root is None else str(self._root / name) for name in names])
        paths = table.words("path")
        if table.has("x") or pc.count_distinct(paths).as_py() < len(paths):
            raise DataError(f"{self.path} has several rows for one path; patches are read of whole images")
        rows = pc.index_in(wanted, value_set=paths)
        if rows.null_count:
            missing = wanted[rows.is_null().index(True).as_py()].as_py()
            raise DataError(f"{self.path} has no row for {missing!r}; embed these images again")
        return rows.to_pylist()

    @property
    def protocol(self) -> dict[str, Any]:
        """What a number says of the precision of its features: nothing where none was lost."""
        return {"patches": "fp16"} if self.about.get("dtype") == "fp16" else {}


Stored = Sequence[StoredPatches]


def open_stored(paths: Sequence[str | Path], encoder: Encoder, sets: Sequence[Images]) -> tuple[StoredPatches, ...]:
    """Refuses a file of another encoder or of other images: nobody would see that it was not read."""
    files = tuple(map(StoredPatches, paths))
    for file in files:
        if not any(file.is_of(encoder, images) for images in sets):
            raise DataError(
                f"{file.path} holds patches of {file.about.get('root')} by {file.about.get('run')}, which are not the "
                f"images and the weights to be measured; embed these with {encoder.name}, or leave it out"
            )
    return files


def stored_for(stored: Stored, encoder: Encoder, images: Images, layers: Sequence[str]) -> StoredPatches | None:
    """The file that holds them all; None where it belongs to another encoder, such as a baseline, or another set."""
    fitting = [file for file in stored if file.is_of(encoder, images)]
    for file in fitting:
        if set(layers) <= set(file.layers):
            return file
    if fitting:
        asked = ",".join(layers)
        raise DataError(
            f"{fitting[0].path} holds the layers {', '.join(fitting[0].layers)}; {asked} is measured: give `echoless "
            f"embed` --tokens --layer {asked}"
        )
    return None
