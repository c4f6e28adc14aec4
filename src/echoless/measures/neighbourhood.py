"""What do the nearest neighbours of every row say? Which rows are near-duplicates, and which have nobody near.

Shapes: N rows, K nearest other rows of each, M queries.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from echoless.errors import DataError
from echoless.measures.inputs import Rows, check_count
from echoless.measures.knn import QUERY_TILE, nearest_neighbours

ASKED_AT_ONCE = 64 * QUERY_TILE  # rows whose neighbours are looked for in one pass over all of them
FEW_QUERIES = 32  # up to which a small tile of queries is compared at a time


def nearest_in_blocks(blocks: Iterable[Rows], queries_MD: Rows, k: int) -> tuple[Tensor, Tensor]:
    """`nearest_neighbours` among the rows of all blocks, of which only one is in memory at a time."""
    check_count("k", k)
    tile = FEW_QUERIES if len(queries_MD) <= FEW_QUERIES else QUERY_TILE
    values_MK, rows_MK, first = torch.empty(len(queries_MD), 0), torch.empty(len(queries_MD), 0).long(), 0
    for block in blocks:
        values, rows = nearest_neighbours(block, queries_MD, k, query_tile=tile)
        values_MK, rows_MK = torch.cat([values_MK, values], dim=1), torch.cat([rows_MK, rows + first], dim=1)
        # Stable: of equal similarities, the row that comes first in the table is nearer.
        values_MK, order = values_MK.sort(dim=1, descending=True, stable=True)
        values_MK, rows_MK = values_MK[:, :k], rows_MK.gather(1, order)[:, :k]
        first += len(block)
    return values_MK, rows_MK


def nearest_others(rows_ND: Rows, k: int) -> tuple[Tensor, Tensor]:
    """Similarities and numbers of the k nearest other rows of every row, both (N, K).

    Besides these, a block of rows is in memory at a time: the rows may be mapped from a file.
    """
    count = len(rows_ND)
    if count < 2:
        raise DataError(f"features has {count} {'row' if count == 1 else 'rows'}; allowed: 2 or more")
    k = min(k, count - 1)
    values_NK, rows_NK = torch.empty(count, k), torch.empty(count, k, dtype=torch.int64)
    for start in range(0, count, ASKED_AT_ONCE):
        own_B = torch.arange(start, min(start + ASKED_AT_ONCE, count))
        found = nearest_neighbours(rows_ND, rows_ND[start : start + ASKED_AT_ONCE], k + 1)
        values_NK[own_B], rows_NK[own_B] = without_self(*found, own_B)
    return values_NK, rows_NK


def without_self(values_NK: Tensor, rows_NK: Tensor, own_N: Tensor) -> tuple[Tensor, Tensor]:
    """Without the row that asked, `own_N`; where many equal rows have pushed it out, without the last."""
    own_NK = rows_NK == own_N.unsqueeze(1)
    own_NK[:, -1] |= ~own_NK.any(dim=1)
    shape = (len(rows_NK), rows_NK.shape[1] - 1)
    return values_NK[~own_NK].view(shape), rows_NK[~own_NK].view(shape)


def duplicate_groups(similarities_NK: Tensor, neighbours_NK: Tensor, threshold: float) -> list[list[int]]:
    """Rows that pairs at or above the threshold connect, in their order; the largest group first, rows apart left out.

    A chain of pairs is one group, even if its ends are further apart.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    near_NK = similarities_NK >= threshold
    here = torch.arange(len(near_NK)).unsqueeze(1).expand_as(near_NK)[near_NK].numpy()
    there, count = neighbours_NK[near_NK].numpy(), len(near_NK)
    graph = coo_array((np.ones(len(here), bool), (here, there)), shape=(count, count))
    _, group_N = connected_components(graph, directed=False)
    together = np.flatnonzero(np.bincount(group_N)[group_N] > 1)
    groups: dict[int, list[int]] = {}
    for row in together.tolist():
        groups.setdefault(int(group_N[row]), []).append(row)
    return sorted(groups.values(), key=lambda rows: (-len(rows), rows[0]))


def outlier_scores(similarities_NK: Tensor) -> Tensor:
    """(N): the mean cosine distance of a row to its k nearest others; large where nothing similar is in the table."""
    return 1 - similarities_NK.mean(dim=1, dtype=torch.float64).float()


def separating_threshold(copies_P: Tensor, others_Q: Tensor) -> float:
    """The similarity that most copies reach and most others do not: largest in the difference of the two shares.

    Among equally good ones the middle of the widest gap. Copies that hide among the others lower both shares alike, and
    do not move it.
    """
    ends = (
        torch.cat([copies_P, others_Q]).double().unique()
    )  # sorted; a threshold between two of them is like any other
    copies = 1 - torch.searchsorted(copies_P.double().sort().values, ends) / len(copies_P)
    others = 1 - torch.searchsorted(others_Q.double().sort().values, ends) / len(others_Q)
    gain, below = copies - others, torch.cat([ends[:1], ends[:-1]])
    best = (gain >= gain.max() - 1e-12).nonzero()[:, 0]
    widest = best[(ends - below)[best].argmax()]
    return float((ends[widest] + below[widest]) / 2)
