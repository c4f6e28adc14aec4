"""How are features mapped to two dimensions? With t-SNE."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.measures.inputs import Rows, check_count, check_features, read_rows

PCA_DIMENSIONS = 50


def tsne_map(features_ND: Rows, *, seed: int, perplexity: float = 30.0) -> Tensor:
    """A 2-d t-SNE map (N, 2) of the features, reduced to 50 principal components first; the same map every time.

    With few samples the perplexity is lowered to (N - 1) / 3. Takes about a minute for 10,000 samples: pass a sample.
    """
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE
    from threadpoolctl import threadpool_limits

    check_count("seed", seed, at_least=0)
    if not (math.isfinite(perplexity) and perplexity > 0):
        raise ConfigError(f"perplexity is {perplexity!r}; allowed: a finite number above 0")
    check_features("features", features_ND, at_least=4)
    features = read_rows(features_ND, 0, len(features_ND)).double().numpy()
    dims = min(PCA_DIMENSIONS, *features.shape)
    # One thread, because sums over threads are added in the order in which they happen to finish.
    with threadpool_limits(limits=1):
        reduced = PCA(dims, svd_solver="full").fit_transform(features)
        perplexity = min(perplexity, (len(features) - 1) / 3)
        # The start is spread so little by default that it must not be left to a constant map.
        init = "pca" if reduced.shape[1] >= 2 and reduced[:, 0].std() > 0 else "random"
        points = TSNE(init=init, perplexity=perplexity, random_state=seed, n_jobs=1).fit_transform(reduced)
    return torch.from_numpy(points).float()
