"""Proves that the spectral embedding recovers planted partitions, directly and by the stochastic method, and its graph.

Run alone: pytest tests/measures/test_spectral.py. References: numpy eigenvectors, brute-force graphs, planted truth.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.metrics import adjusted_rand_score

from echoless.errors import ConfigError, DataError
from echoless.measures import (
    affinity_graph,
    cluster_tokens,
    maps_to_vectors,
    spectral_embedding,
    stochastic_embedding,
    to_rgb,
)


def planted(nodes: int, groups: int, inside: float, outside: float, seed: int = 0) -> tuple[csr_matrix, np.ndarray]:
    rng = np.random.default_rng(seed)
    truth = rng.permutation(np.arange(nodes) % groups)
    chance = np.where(truth[:, None] == truth, inside, outside)
    upper = np.triu(rng.random((nodes, nodes)) < chance, 1).astype(float)
    return csr_matrix(upper + upper.T), truth


def planted_tokens(images: int, tokens: int, groups: int, noise: float) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    directions = torch.linalg.qr(torch.randn(12, 12, generator=generator)).Q[:groups]
    truth = torch.randint(groups, (images, tokens), generator=generator)
    return directions[truth] + noise * torch.randn(images, tokens, 12, generator=generator), truth.flatten()


@pytest.mark.parametrize("dense_nodes", [0, 2000])
def test_a_planted_partition_is_recovered(dense_nodes, monkeypatch):
    monkeypatch.setattr("echoless.measures.spectral.DENSE_NODES", dense_nodes)
    graph, truth = planted(400, 4, 0.3, 0.03)
    embedding = spectral_embedding(graph, 3)
    found = cluster_tokens(embedding.vectors_TK, 4, seed=0)
    score = adjusted_rand_score(truth, found)
    print(f"spectral planted partition, dense up to {dense_nodes}: adjusted Rand index {score:.3f}")
    assert score == 1.0


@pytest.mark.parametrize("dense_nodes", [0, 2000])
def test_the_vectors_are_those_of_the_random_walk(dense_nodes, monkeypatch):
    monkeypatch.setattr("echoless.measures.spectral.DENSE_NODES", dense_nodes)
    graph, _ = planted(120, 3, 0.5, 0.1)
    walk = graph.toarray() / graph.sum(axis=1)
    vectors, values = spectral_embedding(graph, 4)
    expected = np.sort(np.linalg.eigvals(np.asarray(walk)).real)[::-1][1:5]
    assert np.allclose(values, expected, atol=1e-8)
    assert np.allclose(walk @ vectors.numpy(), vectors.numpy() * values.numpy(), atol=1e-6)
    assert np.allclose(np.linalg.norm(vectors, axis=0), 1)
    assert (vectors.gather(0, vectors.abs().argmax(dim=0, keepdim=True)) > 0).all()


def test_separate_components_are_told_apart():
    """The eigenvalue 1 is repeated: every group is a component of its own."""
    graph, truth = planted(150, 3, 0.5, 0.0)
    found = cluster_tokens(spectral_embedding(graph, 2).vectors_TK, 3, seed=0)
    assert adjusted_rand_score(truth, found) == 1.0


def test_layers_that_each_know_a_part_know_the_whole_together():
    """One graph tells {0, 1} from {2, 3}, the other {0, 2} from {1, 3}."""
    truth = np.arange(200) % 4
    first, second = truth // 2, truth % 2
    graphs = []
    for seed, group in enumerate((first, second)):
        rng = np.random.default_rng(seed)
        upper = np.triu(rng.random((200, 200)) < np.where(group[:, None] == group, 0.5, 0.05), 1).astype(float)
        graphs.append(csr_matrix(upper + upper.T))
    together = cluster_tokens(spectral_embedding(graphs, 3).vectors_TK[:, :2], 4, seed=0)
    assert adjusted_rand_score(truth, together) > 0.95


def test_the_embedding_is_the_same_every_time_and_a_lone_node_stays_at_zero():
    graph, _ = planted(300, 3, 0.3, 0.05)
    graph = graph.tolil()
    graph[7, :] = 0
    graph[:, 7] = 0
    graph = graph.tocsr()
    first, second = spectral_embedding(graph, 3), spectral_embedding(graph, 3)
    assert first.vectors_TK.equal(second.vectors_TK)
    assert first.vectors_TK[7].abs().max() == 0


def test_the_graph_keeps_the_nearest_neighbours_within_and_across_images():
    tokens = torch.randn(3, 6, 5, generator=torch.Generator().manual_seed(0))
    graph = affinity_graph(tokens, within=2, across=3, weakest=0.1).toarray()
    flat = tokens.flatten(0, 1).double().numpy()
    unit = flat / np.linalg.norm(flat, axis=1, keepdims=True)
    cosine, image = unit @ unit.T, np.arange(18) // 6
    directed = np.zeros((18, 18))
    for i in range(18):
        own = [j for j in np.argsort(-cosine[i]) if image[j] == image[i] and j != i][:2]
        other = [j for j in np.argsort(-cosine[i]) if image[j] != image[i]][:3]
        for j in own + other:
            directed[i, j] = cosine[i, j] if cosine[i, j] > 0.1 else 0
    assert np.allclose(graph, (directed + directed.T) / 2, atol=1e-6)
    assert (graph == graph.T).all() and (np.diag(graph) == 0).all()


def test_the_stochastic_embedding_groups_planted_tokens():
    tokens, truth = planted_tokens(8, 16, 3, 0.1)
    maps = stochastic_embedding(
        [tokens],
        generator=torch.Generator().manual_seed(0),
        channels=12,
        epochs=60,
        images_per_batch=4,
        lr=0.1,
        ema=0.9,
    )
    assert maps.shape == (8, 16, 12) and torch.allclose(maps.sum(dim=2), torch.ones(8, 16), atol=1e-5)
    found = cluster_tokens(maps_to_vectors(maps, 3), 3, seed=0)
    score = adjusted_rand_score(truth, found)
    print(f"spectral stochastic planted tokens: adjusted Rand index {score:.3f}")
    assert score > 0.9


def test_tokens_end_to_end_direct():
    tokens, truth = planted_tokens(6, 25, 4, 0.15)
    embedding = spectral_embedding(affinity_graph(tokens, within=10, across=10), 3)
    assert adjusted_rand_score(truth, cluster_tokens(embedding.vectors_TK, 4, seed=0)) > 0.97


def test_colours_share_one_scale_over_the_whole_set():
    vectors = torch.arange(24).view(8, 3).double()
    colours = to_rgb(vectors, 2, 2, 2)
    assert colours.shape == (2, 3, 2, 2) and colours.min() == 0 and colours.max() == 1
    assert colours[0].max() < colours[1].min()  # the second image is brighter, and stays so
    assert torch.allclose(colours[1, :, 1, 0], torch.tensor([6 / 7] * 3))


def test_bad_input_is_refused_with_a_sentence():
    graph, _ = planted(20, 2, 0.9, 0.1)
    with pytest.raises(ConfigError, match="dims is 20; allowed: below 20"):
        spectral_embedding(graph, 20)
    with pytest.raises(DataError, match="they must have the same nodes"):
        spectral_embedding([graph, planted(10, 2, 0.9, 0.1)[0]], 2)
    with pytest.raises(DataError, match=r"allowed: \(images, tokens, dimensions\)"):
        affinity_graph(torch.zeros(3, 4))
    with pytest.raises(DataError, match="vectors has shape"):
        to_rgb(torch.zeros(8, 2), 2, 2, 2)
