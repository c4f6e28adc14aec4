"""Which class do the nearest neighbours of a feature vote for?

The protocol of the DINO evaluation: cosine similarity, the k nearest rows of the training bank, each voting for its
class with weight exp(similarity / temperature). The search is exact.

Rules that decide every case:
- The cosine of a zero vector with anything is 0.
- Equal similarity: the row that comes first in the bank is nearer. Equal votes: the smaller label wins.
- k larger than the bank means the whole bank.

Results do not depend on chunk sizes. A matrix product's last bit may depend on its shape, so similarities are always
computed in tiles of one shape, aligned to the index and padded with zeros; the chunk size only says how many are held.

Shapes: N bank rows, M queries, D dimensions, K neighbours, C classes; R bank rows of one chunk, Q queries of one tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.errors import ConfigError
from echoless.measures.inputs import (
    ROWS_AT_ONCE,
    Rows,
    as_labels,
    check_count,
    check_features,
    check_same_width,
    read_rows,
)
from echoless.measures.threads import one_thread_each
from echoless.products import matrix_product

QUERY_TILE = 1024
BANK_TILE = 2048
BANK_CHUNK = 65_536
BLOCK = 32  # divides BANK_TILE
MOST_WAITING = 400_000  # candidates
MOST_ROWS = 2**40


def knn_classify(
    train_ND: Rows,
    train_labels_N: Rows,
    queries_MD: Rows,
    k: int | Sequence[int] = 20,
    temperature: float = 0.07,
    *,
    bank_chunk: int = BANK_CHUNK,
) -> dict[int, Tensor]:
    """The predicted label of every query, for each k asked for."""
    ks = list(k) if isinstance(k, Sequence) else [k]
    if not ks:
        raise ConfigError("k is an empty list; allowed: whole numbers, 1 or more")
    for value in ks:
        check_count("k", value)
    if not (math.isfinite(temperature) and temperature > 0):
        raise ConfigError(f"temperature is {temperature!r}; allowed: a finite number above 0")
    labels_N = as_labels("train_labels", train_labels_N, len(train_ND))
    similarities_MK, neighbours_MK = nearest_neighbours(train_ND, queries_MD, max(ks), bank_chunk=bank_chunk)
    votes_MK = labels_N[neighbours_MK]
    return {value: weighted_vote(similarities_MK[:, :value], votes_MK[:, :value], temperature) for value in ks}


def accuracy(predictions_M: Tensor, labels_M: Rows) -> float:
    """The share of predictions that are right."""
    return float((predictions_M == as_labels("labels", labels_M, len(predictions_M))).double().mean())


# The kNN protocol of arXiv:2104.14294: w = exp(cosine / temperature).
def weighted_vote(similarities_MK: Tensor, labels_MK: Tensor, temperature: float) -> Tensor:
    """The label with the largest sum of weights; the smaller one among equals."""
    classes_C, columns_MK = labels_MK.unique(return_inverse=True)
    # Relative to the nearest neighbour: the winner is the same and no temperature overflows.
    relative_MK = similarities_MK.double() - similarities_MK[:, :1].double()
    weights_MK = (relative_MK / temperature).exp()
    winners = []
    for weights, columns in zip(weights_MK.split(QUERY_TILE), columns_MK.split(QUERY_TILE)):
        votes = torch.zeros(len(weights), len(classes_C), dtype=torch.float64)
        # One neighbour at a time, nearest first, so that equal neighbourhoods have equal sums to the last bit.
        for rank in range(weights.shape[1]):
            votes.scatter_add_(1, columns[:, rank : rank + 1], weights[:, rank : rank + 1])
        winners.append(votes.argmax(dim=1))
    return classes_C[torch.cat(winners)]


def nearest_neighbours(
    bank_ND: Rows, queries_MD: Rows, k: int, *, bank_chunk: int = BANK_CHUNK, query_tile: int = QUERY_TILE
) -> tuple[Tensor, Tensor]:
    """Cosine similarities and bank rows of the k nearest neighbours of every query, nearest first; both (M, K).

    query_tile: how many queries are compared at a time, padded with zeros; a small one for few of them. The last bit of
    a similarity may depend on it.
    """
    check_count("k", k)
    check_count("bank_chunk", bank_chunk)
    check_count("query_tile", query_tile)
    check_features("train", bank_ND)
    check_features("queries", queries_MD)
    check_same_width("train", bank_ND, "queries", queries_MD)

    k, chunk = min(k, len(bank_ND)), _round_up(bank_chunk, BANK_TILE)
    starts = range(0, len(queries_MD), query_tile)
    searches = [_Nearest(min(query_tile, len(queries_MD) - start), k) for start in starts]
    with one_thread_each() as pool:
        for start in range(0, len(bank_ND), chunk):
            rows = range(start, min(start + chunk, len(bank_ND)), BANK_TILE)
            tiles = list(zip(rows, pool.map(partial(_bank_tile, bank_ND), rows)))
            scan = partial(_scan, tiles, len(bank_ND), queries_MD, query_tile)
            list(pool.map(scan, starts, searches))
    values_MK, found_MK = (torch.cat(parts) for parts in zip(*(search.result() for search in searches)))
    return values_MK, found_MK


def _scan(
    tiles: list[tuple[int, Tensor]], n: int, queries_MD: Rows, query_tile: int, first_query: int, search: _Nearest
) -> None:
    """Updates one tile of queries with the similarities to each tile of the bank, (first row, unit rows), in turn."""
    queries_QD = _unit_tile(queries_MD, first_query, query_tile)
    memory_QT = torch.empty(query_tile, BANK_TILE)  # small enough to stay in the cache
    for row, bank_DT in tiles:
        similarities_QT = matrix_product(queries_QD, bank_DT.T, out=memory_QT)
        similarities_QT[:, n - row :] = -math.inf  # the padding of the bank
        search.add(similarities_QT[: search.queries], row)  # without the padding of the queries
    search.merge()


def memory_estimate(
    bank_rows: int, queries: int, dim: int, k: int = 20, bank_chunk: int = BANK_CHUNK, threads: int = 2
) -> int:
    """Bytes that `nearest_neighbours` may need besides the features, for the worst order of the bank.

    1,281,167 x 768 against 50,000: 277 MB of unit rows, some still being read, and 36 MB of results; per thread 8 MB of
    similarities, 6 MB of queries and, in the worst of orders, 150 MB of candidates (in a random order, below 5 MB).
    """
    chunk = min(_round_up(bank_chunk, BANK_TILE), _round_up(bank_rows, BANK_TILE))
    unit_rows = 4 * dim * (chunk + 3 * max(ROWS_AT_ONCE, BANK_TILE))
    similarities = 4 * QUERY_TILE * BANK_TILE
    # At most one tile beyond the limit, and copies while they are merged.
    candidates = 5 * (8 + 4) * (MOST_WAITING + QUERY_TILE * BANK_TILE)
    results = 3 * (8 + 4) * min(k, bank_rows) * _round_up(queries, QUERY_TILE)  # held, joined, and sorted
    return unit_rows + threads * (similarities + 2 * 4 * dim * QUERY_TILE + candidates) + results


class _Nearest:
    """The k nearest rows found so far for one tile of queries, fed with one tile of the bank after another.

    A row can only matter if it is nearer than the k-th found so far. Whole blocks are ruled out by their maximum, and
    what is left waits to be merged until the bank seen has doubled, which leaves about k candidates per query.
    """

    def __init__(self, queries: int, k: int) -> None:
        self.queries, self.k = queries, k
        # Both in the order of the bank, not of similarity: that is how the first among equals is found.
        self.values_QK = torch.empty(queries, 0)
        self.rows_QK = torch.empty(queries, 0, dtype=torch.int64)
        self.threshold_Q: Tensor | None = None  # at least k rows reach it, or, once k are held, it is the k-th of them
        self.waiting: list[tuple[Tensor, Tensor]] = []  # candidates: query and row in one number, and similarity
        self.next_merge = 0

    def add(self, similarities_QT: Tensor, start: int) -> None:
        """Considers the bank rows from `start` on."""
        maxima_QB = similarities_QT.unflatten(1, (-1, BLOCK)).amax(dim=2)
        if self.threshold_Q is None and self.k <= maxima_QB.shape[1]:
            # k blocks reach the k-th largest maximum, so k rows do; a hair below it, because reaching it is enough.
            kth_Q = maxima_QB.topk(self.k, dim=1).values[:, -1]
            self.threshold_Q = kth_Q.nextafter(torch.full_like(kth_Q, -math.inf))
            self.next_merge = 2 * (start + BANK_TILE)
        elif self.threshold_Q is None:
            rows_QT = torch.arange(start, start + BANK_TILE).expand(self.queries, -1)
            self._keep_largest(similarities_QT, rows_QT)
            self.next_merge = 2 * (start + BANK_TILE)
            return
        place, value = _above(similarities_QT, maxima_QB, self.threshold_Q)
        self.waiting.append((place // BANK_TILE * MOST_ROWS + place % BANK_TILE + start, value))
        if start + BANK_TILE >= self.next_merge or sum(len(part) for part, _ in self.waiting) > MOST_WAITING:
            self.merge()
            self.next_merge = 2 * (start + BANK_TILE)

    def result(self) -> tuple[Tensor, Tensor]:
        """Similarities and rows, nearest first."""
        # Stable: equal similarities stay in the order of the bank.
        values_QK, order = self.values_QK.sort(dim=1, descending=True, stable=True)
        return values_QK, self.rows_QK.gather(1, order)

    def merge(self) -> None:
        """Moves the waiting candidates into a matrix padded with -inf, and keeps the k largest of all."""
        if not self.waiting:
            return
        place, value = (torch.cat(parts) for parts in zip(*self.waiting))
        self.waiting = []
        place, order = place.sort()
        query = place // MOST_ROWS
        counts_Q = query.bincount(minlength=self.queries)
        column = torch.arange(len(query)) - (counts_Q.cumsum(0) - counts_Q)[query]
        values = torch.full((self.queries, int(counts_Q.max())), -math.inf)
        rows = torch.zeros(values.shape, dtype=torch.int64)
        values[query, column] = value[order]
        rows[query, column] = place % MOST_ROWS
        self._keep_largest(values, rows)

    def _keep_largest(self, values: Tensor, rows: Tensor) -> None:
        values, rows = torch.cat([self.values_QK, values], dim=1), torch.cat([self.rows_QK, rows], dim=1)
        kept = _largest(values, self.k)
        self.values_QK, self.rows_QK = values.gather(1, kept), rows.gather(1, kept)
        if len(self.values_QK[0]) == self.k:
            self.threshold_Q = self.values_QK.amin(dim=1)


def _above(similarities_QT: Tensor, maxima_QB: Tensor, threshold_Q: Tensor) -> tuple[Tensor, Tensor]:
    """Flat positions and values of the similarities above the query's threshold.

    Equal to the threshold is not enough: the row that set it comes earlier in the bank.
    """
    block = (maxima_QB > threshold_Q.unsqueeze(1)).flatten().nonzero().squeeze(1)
    values = similarities_QT.view(-1, BLOCK).index_select(0, block)
    threshold = threshold_Q[block // maxima_QB.shape[1]]
    hit = (values > threshold.unsqueeze(1)).flatten().nonzero().squeeze(1)
    return block[hit // BLOCK] * BLOCK + hit % BLOCK, values.flatten()[hit]


def _largest(values: Tensor, k: int) -> Tensor:
    """Columns of the k largest values of each row, in ascending order; the first ones among equals."""
    if k >= values.shape[1]:
        return torch.arange(values.shape[1]).expand(len(values), -1)
    top, columns = values.topk(k + 1, dim=1)
    columns = columns[:, :k]
    tied = top[:, k - 1] == top[:, k]  # topk chose freely among equals; choose again
    if tied.any():
        columns[tied] = values[tied].sort(dim=1, descending=True, stable=True).indices[:, :k]
    return columns.sort(dim=1).values


def _bank_tile(bank_ND: Rows, start: int) -> Tensor:
    """Unit rows as (D, T) rather than (T, D), because the product is faster."""
    return _unit_tile(bank_ND, start, BANK_TILE).T.contiguous()


def _unit_tile(features: Rows, start: int, size: int) -> Tensor:
    """Rows [start, start + size) divided by their norms, padded with zeros."""
    rows = read_rows(features, start, start + size)
    # Dividing by the largest entry first keeps the squares of huge and of tiny rows inside float32.
    largest = torch.linalg.vector_norm(rows, math.inf, dim=1, keepdim=True)
    scaled = rows / largest.where(largest > 0, 1.0)
    norms = torch.linalg.vector_norm(scaled, dim=1, keepdim=True)
    unit = scaled.div_(norms.where(norms > 0, 1.0))
    return unit if len(rows) == size else F.pad(unit, (0, 0, 0, size - len(rows)))


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
