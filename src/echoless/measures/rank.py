"""What is the effective rank of the features? Three definitions that give different numbers, each with its own name.

| name          | the N x D matrix whose singular values s count       | weights p          | value  |
|---------------|------------------------------------------------------|--------------------|--------|
| rank_paper    | each sample's token minus the mean of its features   | s_i^2 / sum s^2    | H(p)   |
| rank_centered | each feature minus its mean over the samples         | s_i^2 / sum s^2    | H(p)   |
| rankme        | the embeddings as they are                           | s_i / sum s + 1e-7 | exp(H) |

H is the entropy in nats. The singular values come from a QR decomposition updated with one block of rows after another,
in float64: the N x N covariance of the paper is never formed, no precision is lost by squaring, and the result does not
depend on a chunk size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from echoless.errors import DataError
from echoless.measures.inputs import Rows, check_features, row_blocks

RANKME_EPSILON = 1e-7
BLOCK_ROWS = 4096


# Eq. (6), arXiv:2404.10947, of the matrix A(i, j) = covariance of the class tokens of samples i and j.
def rank_paper(class_tokens_ND: Rows) -> float:
    """Entropy, with no exp, of the normalised singular values of `numpy.cov(class_tokens)`; at most ln(rank)."""
    check_features("class_tokens", class_tokens_ND)
    blocks = _blocks(class_tokens_ND)
    return _entropy_of_covariance(class_tokens_ND, (block - block.mean(dim=1, keepdim=True) for block in blocks))


def rank_centered(features_ND: Rows) -> float:
    """Entropy, with no exp, of the normalised singular values of the D x D covariance of the features."""
    check_features("features", features_ND)
    mean_D = sum((block.sum(dim=0) for block in _blocks(features_ND)), torch.zeros(())) / len(features_ND)
    return _entropy_of_covariance(features_ND, (block - mean_D for block in _blocks(features_ND)))


# RankMe, arXiv:2210.02885.
def rankme(embeddings_NK: Rows) -> float:
    """RankMe: exp of the entropy of p_i = s_i / ||s||_1 + 1e-7, uncentred; at most the rank, up to the 1e-7."""
    check_features("embeddings", embeddings_NK)
    singular = _singular_values(_blocks(embeddings_NK))
    weights = singular / singular.sum().clamp(min=torch.finfo(torch.float64).tiny) + RANKME_EPSILON
    return float(_entropy(weights).exp())


def pearson(x: Sequence[float] | Tensor, y: Sequence[float] | Tensor) -> float:
    """Pearson's correlation coefficient of two lists of numbers, such as rank and accuracy across runs."""
    x_N, y_N = torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(y, dtype=torch.float64)
    if x_N.ndim != 1 or x_N.shape != y_N.shape or len(x_N) < 2:
        raise DataError(
            f"x and y have shapes {tuple(x_N.shape)} and {tuple(y_N.shape)}; allowed: equal lists of 2 or more"
        )
    for name, values in (("x", x_N), ("y", y_N)):
        if not values.isfinite().all() or (values == values[0]).all():
            raise DataError(f"{name} is {values.tolist()}; allowed: finite numbers that are not all the same")
    x_N, y_N = x_N - x_N.mean(), y_N - y_N.mean()
    return float((x_N / x_N.norm()).dot(y_N / y_N.norm()).clamp(-1, 1))


def _entropy_of_covariance(features_ND: Rows, centred: Iterable[Tensor]) -> float:
    singular = _singular_values(centred)
    # What centring leaves of a constant is rounding, not variance.
    size = sum(float(block.square().sum()) for block in _blocks(features_ND)) ** 0.5
    noise = size * max(features_ND.shape) * torch.finfo(torch.float64).eps
    eigenvalues = singular.where(singular > noise, 0.0).square()
    total = eigenvalues.sum()
    return float(_entropy(eigenvalues / total)) if total > 0 else 0.0


def _entropy(weights: Tensor) -> Tensor:
    return torch.special.entr(weights).sum()  # 0 ln 0 = 0


def _singular_values(blocks: Iterable[Tensor]) -> Tensor:
    triangle = None
    for block in blocks:
        triangle = torch.linalg.qr(block if triangle is None else torch.cat([triangle, block]), mode="r").R
    assert triangle is not None
    return torch.linalg.svdvals(triangle)


def _blocks(features: Rows) -> Iterable[Tensor]:
    return row_blocks(features, torch.float64, BLOCK_ROWS)
