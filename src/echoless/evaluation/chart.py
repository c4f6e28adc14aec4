"""Where is an image on a 2-d map of all of them? Principal components, or t-SNE for a few thousand images.

The places become the columns x and y of the table, which viewers of embeddings open as they are.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch

from echoless.measures import principal_plane, tsne_map
from echoless.storage import write_bytes

LEARNED_FROM = 100_000  # vectors, evenly from the set, that decide the principal components

Tables = Callable[[], Iterator[pa.Table]]


def write_chart(folder: Path, tables: Tables, rows: int, kind: str) -> None:
    """folder/map.npy: (N, 2), in the order of the rows of all tables."""

    def vectors() -> Iterator[np.ndarray]:
        for table in tables():
            lists = table["feature"].combine_chunks()
            yield lists.flatten().to_numpy(zero_copy_only=False).reshape(len(lists), -1).astype(np.float32)

    if kind == "tsne":
        places_N2 = tsne_map(np.concatenate(list(vectors())), seed=0).numpy()
    else:
        step = -(-rows // LEARNED_FROM)
        mean_D, axes_D2 = principal_plane(torch.from_numpy(np.concatenate(list(_every(vectors(), step)))))
        places_N2 = np.concatenate([((torch.from_numpy(each) - mean_D) @ axes_D2).numpy() for each in vectors()])
    data = io.BytesIO()
    np.save(data, places_N2.astype(np.float32), allow_pickle=False)
    write_bytes(folder / "map.npy", data.getvalue())


def _every(blocks: Iterator[np.ndarray], step: int) -> Iterator[np.ndarray]:
    """Rows 0, step, 2 * step, ... of all blocks."""
    row = 0
    for block in blocks:
        yield block[-row % step :: step]
        row += len(block)
