"""How are neighbours found among more vectors than can be compared with each other? With faiss, nearly all of them.

The vectors are sorted into cells around centres (an inverted file), and a query looks into the nearest cells. How many:
so many that 99 % of the true neighbours of a few rows are found, which is measured and said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from echoless.config.extras import install_command
from echoless.errors import ConfigError
from echoless.measures import nearest_in_blocks

WANTED = 0.99  # share of the true neighbours
TRIED_ON = 256  # rows
TRAINED_ON = 64  # vectors for each cell

Blocks = Callable[[], Iterator[np.ndarray]]


class Approximation(NamedTuple):
    """Similarities and rows, (M, K), nearest first; the measured share of the true neighbours."""

    values_MK: Tensor
    rows_MK: Tensor
    recall: float


def approximate_neighbours(blocks: Blocks, rows: int, queries: Blocks, k: int) -> Approximation:
    """The k nearest of all rows for every query, by cosine."""
    faiss = _faiss()
    index = _index(faiss, blocks, rows)
    tried_ND = _spread(blocks, rows, TRIED_ON)
    true_values, _ = nearest_in_blocks(blocks(), tried_ND, k)
    recall, index.nprobe = 0.0, 0
    while recall < WANTED and index.nprobe < index.nlist:
        index.nprobe = min(max(8, 2 * index.nprobe), index.nlist)
        # By similarity, not by row: of equal vectors, either is a true neighbour.
        found = torch.from_numpy(index.search(_unit(tried_ND), k)[0])
        recall = float((found >= true_values[:, -1:] - 1e-5).float().mean())
    parts = [index.search(_unit(block), k) for block in queries()]
    values, numbers = (torch.from_numpy(np.concatenate(each)) for each in zip(*parts))
    return Approximation(values, numbers.long(), recall)


def _faiss() -> Any:
    try:
        import faiss
    except Exception:
        raise ConfigError(
            f"so many vectors need faiss; install the extra: {install_command('search')}, or give --engine exact, "
            "which takes long"
        ) from None
    return faiss


def _index(faiss: Any, blocks: Blocks, rows: int) -> Any:
    cells = max(1, min(4 * math.isqrt(rows), rows // 39))  # faiss asks for 39 vectors to learn a centre from
    learned_from = _unit(_spread(blocks, rows, TRAINED_ON * cells))
    width = learned_from.shape[1]
    index = faiss.IndexIVFFlat(faiss.IndexFlatIP(width), width, cells, faiss.METRIC_INNER_PRODUCT)
    index.train(learned_from)
    for block in blocks():
        index.add(_unit(block))
    return index


def _spread(blocks: Blocks, rows: int, count: int) -> np.ndarray:
    """About `count` rows, evenly from all of them."""
    step, first, found = -(-rows // count), 0, []
    for block in blocks():
        found.append(block[-first % step :: step])
        first += len(block)
    return np.concatenate(found)


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.ascontiguousarray(vectors / np.where(norms > 0, norms, 1), np.float32)
