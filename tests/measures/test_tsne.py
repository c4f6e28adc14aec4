"""Proves that the 2-d map keeps clusters apart and is the same map every time.

Run alone: pytest tests/measures/test_tsne.py.
"""

from __future__ import annotations

import pytest
import torch
from sklearn.decomposition import PCA
from sklearn.manifold import TSNE
from sklearn.metrics import silhouette_score

from echoless.errors import DataError
from echoless.measures import tsne_map


def clusters(n: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.randint(3, (n,), generator=generator)
    return torch.randn(3, 60, generator=generator)[labels] * 4 + torch.randn(n, 60, generator=generator), labels


def test_clusters_stay_apart_and_the_map_repeats():
    features, labels = clusters(150)
    points = tsne_map(features, seed=0)
    assert points.shape == (150, 2)
    assert silhouette_score(points, labels) > 0.6
    assert points.equal(tsne_map(features, seed=0))


def test_it_is_scikit_learns_map_of_fifty_components_at_perplexity_thirty():
    features = torch.randn(120, 60, generator=torch.Generator().manual_seed(0))
    reduced = PCA(50, svd_solver="full").fit_transform(features.double().numpy())
    theirs = TSNE(init="pca", perplexity=30, random_state=0, n_jobs=1).fit_transform(reduced)
    assert torch.from_numpy(theirs).float().equal(tsne_map(features, seed=0))


def test_few_samples_and_one_dimension_are_enough():
    assert tsne_map(torch.arange(5.0).unsqueeze(1), seed=0).isfinite().all()


def test_too_few_samples_are_refused():
    with pytest.raises(DataError, match="features has 3 rows; allowed: 4 or more"):
        tsne_map(torch.zeros(3, 2), seed=0)
