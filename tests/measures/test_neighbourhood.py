"""Neighbours in blocks, near-duplicates, outliers and maps, against faiss, scikit-learn and networkx.

Run alone: pytest tests/measures/test_neighbourhood.py
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from echoless.errors import DataError
from echoless.measures import (
    duplicate_groups,
    nearest_in_blocks,
    nearest_neighbours,
    nearest_others,
    neighbourhood,
    outlier_scores,
    principal_plane,
    separating_threshold,
)
from echoless.measures.knn import QUERY_TILE


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.random.default_rng(0).standard_normal((5000, 24)).astype(np.float32) + 0.5


@pytest.mark.parametrize("queries", [1, 32, 33, 200])
def test_blocks_give_the_neighbours_of_the_whole_and_those_of_faiss(vectors, queries):
    faiss = pytest.importorskip("faiss", reason="NOT RUN: faiss is not installed")
    asked = vectors[:queries] + 0.1
    blocks = [vectors[:10], vectors[10:3000], vectors[3000:]]
    values, rows = nearest_in_blocks(blocks, asked, 20)
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    index = faiss.IndexFlatIP(24)
    index.add(unit)
    theirs, numbers = index.search(asked / np.linalg.norm(asked, axis=1, keepdims=True), 20)
    np.testing.assert_allclose(values, theirs, atol=1e-6)
    assert float((rows.numpy() == numbers).mean()) > 0.999
    assert torch.equal(rows, nearest_neighbours(vectors, asked, 20)[1])


def test_of_equal_rows_the_first_in_the_table_is_nearer():
    row = np.ones((1, 4), np.float32)
    values, rows = nearest_in_blocks([row, 2 * row, -row, row], row, 3)
    assert rows.tolist() == [[0, 1, 3]] and values[0].tolist() == pytest.approx([1, 1, 1])


def test_nearest_others_are_those_of_scikit_learn(vectors):
    values, rows = nearest_others(vectors, 7)
    distances, numbers = NearestNeighbors(n_neighbors=8, metric="cosine").fit(vectors).kneighbors(vectors)
    np.testing.assert_allclose(values, 1 - distances[:, 1:], atol=1e-5)
    assert float((rows.numpy() == numbers[:, 1:]).mean()) > 0.999
    np.testing.assert_allclose(outlier_scores(values), distances[:, 1:].mean(axis=1), atol=1e-5)
    with pytest.raises(DataError, match=r"features has 1 row; allowed: 2 or more"):
        nearest_others(vectors[:1], 3)


def test_rows_that_are_asked_in_blocks_have_the_same_neighbours(monkeypatch):
    """Bit for bit, and the last block is a short one."""
    rows = np.random.default_rng(0).standard_normal((2500, 8)).astype(np.float32)
    whole = nearest_others(rows, 4)
    monkeypatch.setattr(neighbourhood, "ASKED_AT_ONCE", QUERY_TILE)
    assert all(torch.equal(one, other) for one, other in zip(whole, nearest_others(rows, 4)))


def test_a_row_is_not_its_own_neighbour_however_many_are_equal():
    rows = nearest_others(np.ones((30, 3), np.float32), 5)[1]
    assert rows.shape == (30, 5) and not (rows == torch.arange(30)[:, None]).any()


def test_groups_are_the_connected_components_of_near_pairs(vectors):
    import networkx

    values, rows = nearest_others(vectors[:400], 5)
    for threshold in (0.5, 0.6, 0.7):
        graph = networkx.Graph()
        graph.add_edges_from((row, int(rows[row, c])) for row, c in (values >= threshold).nonzero().tolist())
        expected = [sorted(group) for group in networkx.connected_components(graph)]
        found = duplicate_groups(values, rows, threshold)
        assert sorted(found) == sorted(expected) and [len(g) for g in found] == sorted(map(len, found), reverse=True)
    assert duplicate_groups(values, rows, 1.1) == []


def test_the_threshold_separates_copies_from_others():
    """In the middle of the gap; between the two where they overlap; and unmoved by copies among the others."""
    copies, others = torch.tensor([0.9, 0.95, 1.0]), torch.tensor([0.1, 0.4, 0.5])
    assert separating_threshold(copies, others) == pytest.approx(0.7)
    generator = torch.Generator().manual_seed(0)
    copies = 0.9 + 0.05 * torch.randn(2000, generator=generator)
    others = 0.6 + 0.05 * torch.randn(2000, generator=generator)
    plain = separating_threshold(copies, others)
    assert 0.74 < plain < 0.78
    mixed = torch.cat([others[:1000], 0.9 + 0.05 * torch.randn(1000, generator=generator)])
    assert abs(separating_threshold(copies, mixed) - plain) < 0.04


def test_the_plane_is_that_of_the_principal_components(vectors):
    mean, axes = principal_plane(vectors)
    theirs = PCA(2, svd_solver="full").fit(vectors.astype(np.float64)).components_.T
    np.testing.assert_allclose(np.abs((axes.numpy() * theirs).sum(axis=0)), 1, atol=1e-3)
    np.testing.assert_allclose(mean, vectors.mean(axis=0), atol=1e-5)
    assert principal_plane(vectors[:, :1])[1].shape == (1, 2)
