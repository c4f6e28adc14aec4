"""How far are generated samples from real ones? Frechet distance, Inception Score, precision and recall of features.

All of them depend on the network that extracts the features; its name is part of every reported metric.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from echoless.errors import ConfigError, DataError
from echoless.measures.inputs import Rows, check_count, check_features, check_same_width, read_rows, row_blocks
from echoless.measures.intervals import ConfidenceInterval

DISTANCE_TILE = 2048


@dataclass(frozen=True)
class Moments:
    """Mean and covariance of a set of features, in float64; the covariance divides by n - 1, as numpy.cov does."""

    mean_D: Tensor
    covariance_DD: Tensor
    n: int | None  # None: published without it

    def __post_init__(self) -> None:
        dim = len(self.mean_D)
        if self.mean_D.shape != (dim,) or self.covariance_DD.shape != (dim, dim):
            shapes = f"{tuple(self.mean_D.shape)} and {tuple(self.covariance_DD.shape)}"
            raise DataError(f"mean and covariance have shapes {shapes}; allowed: (D,) and (D, D)")
        if not (self.mean_D.isfinite().all() and self.covariance_DD.isfinite().all()):
            raise DataError("mean or covariance holds a value that is not finite; allowed: finite numbers only")
        if self.n is not None:
            check_count("n", self.n, at_least=2)


class MomentsAccumulator:
    """Mean and covariance of features that arrive in batches, in float64 and in constant memory."""

    def __init__(self, dim: int) -> None:
        check_count("dim", dim)
        self.n = 0
        self.mean_D = torch.zeros(dim, dtype=torch.float64)
        self.scatter_DD = torch.zeros(dim, dim, dtype=torch.float64)

    def update(self, features_BD: Tensor) -> None:
        """Adds a batch by the stable update of Chan et al. (1979), without differences of large sums."""
        check_features("features", features_BD)
        if features_BD.shape[1] != len(self.mean_D):
            raise DataError(f"features has {features_BD.shape[1]} dimensions; allowed: {len(self.mean_D)}")
        batch = features_BD.detach().to("cpu", torch.float64)
        mean, total = batch.mean(dim=0), self.n + len(batch)
        centred, shift = batch - mean, mean - self.mean_D
        self.scatter_DD += centred.T @ centred + torch.outer(shift, shift) * (self.n * len(batch) / total)
        self.mean_D += shift * (len(batch) / total)
        self.n = total

    def moments(self) -> Moments:
        check_count("the number of samples seen", self.n, at_least=2)
        return Moments(self.mean_D.clone(), self.scatter_DD / (self.n - 1), self.n)


def moments(features_ND: Rows) -> Moments:
    """Mean and covariance of all rows."""
    check_features("features", features_ND, at_least=2)
    accumulator = MomentsAccumulator(features_ND.shape[1])
    for block in row_blocks(features_ND):
        accumulator.update(block)
    return accumulator.moments()


# The Frechet distance of arXiv:1706.08500.
def frechet_distance(first: Moments, second: Moments) -> float:
    """|m1 - m2|^2 + tr(C1 + C2 - 2 (C1 C2)^(1/2)), the squared 2-Wasserstein distance of two Gaussians."""
    return _distance(first, second, _root(first))


def _root(moments: Moments) -> Tensor:
    """C^(1/2)."""
    values, vectors = torch.linalg.eigh(moments.covariance_DD.double())
    return (vectors * values.clamp(min=0).sqrt()) @ vectors.T


def _distance(first: Moments, second: Moments, root_of_first: Tensor) -> float:
    if len(first.mean_D) != len(second.mean_D):
        raise DataError(f"the moments have {len(first.mean_D)} and {len(second.mean_D)} dimensions; they must be equal")
    one, two = first.covariance_DD.double(), second.covariance_DD.double()
    # C1 C2 is similar to the symmetric C1^(1/2) C2 C1^(1/2), whose eigenvalues are real and not negative.
    product = root_of_first @ two @ root_of_first
    cross = torch.linalg.eigvalsh((product + product.T) / 2).clamp(min=0).sqrt().sum()
    distance = (first.mean_D - second.mean_D).square().sum() + one.trace() + two.trace() - 2 * cross
    return max(float(distance), 0.0)


def frechet_interval(
    generated_ND: Rows,
    reference: Moments,
    *,
    generator: torch.Generator,
    level: float = 0.95,
    resamples: int = 200,
) -> ConfidenceInterval:
    """The distance of generated samples from a reference, with a bootstrap interval over the samples.

    A resample repeats rows, so its covariance is poorer and its distance larger than that of the samples themselves.
    The interval is therefore the spread of the resamples around their own mean, moved to the value.
    """
    rows, root = torch.cat(list(row_blocks(generated_ND, torch.float64))), _root(reference)
    value = _distance(reference, moments(rows), root)
    draws = [
        _distance(reference, moments(rows[torch.randint(len(rows), (len(rows),), generator=generator)]), root)
        for _ in range(resamples)
    ]
    spread = torch.tensor(draws, dtype=torch.float64)
    tails = torch.tensor([(1 - level) / 2, (1 + level) / 2], dtype=torch.float64)
    low, high = (value + (spread - spread.mean()).quantile(tails)).tolist()
    return ConfidenceInterval(value, max(low, 0.0), high)


# The Inception Score as in arXiv:1801.01973: exp(E_x KL(p(y|x) || p(y))).
def inception_score(probabilities_NC: Tensor, splits: int = 10) -> tuple[float, float]:
    """Mean and standard deviation of the score over `splits` consecutive parts."""
    check_count("splits", splits)
    check_features("probabilities", probabilities_NC, at_least=splits)
    p = probabilities_NC.double()
    if (p < 0).any() or (p.sum(dim=1) - 1).abs().max() > 1e-3:
        raise DataError("probabilities has rows that are negative or do not sum to 1; they must be class probabilities")
    scores = torch.stack([_score(part) for part in p.tensor_split(splits)])
    return float(scores.mean()), float(scores.std(correction=0))


def _score(probabilities_NC: Tensor) -> Tensor:
    marginal = torch.special.entr(probabilities_NC.mean(dim=0)).sum()
    return (marginal - torch.special.entr(probabilities_NC).sum(dim=1).mean()).exp()


class PrecisionRecall(NamedTuple):
    precision: float
    recall: float


# The manifolds of arXiv:1904.06991.
def precision_recall(real_ND: Rows, generated_MD: Rows, k: int = 3) -> PrecisionRecall:
    """The shares of generated samples inside the real manifold, and of real samples inside the generated one.

    A manifold is the union of balls around its samples, each reaching its k-th nearest other sample.
    """
    check_count("k", k)
    for name, features in (("real", real_ND), ("generated", generated_MD)):
        check_features(name, features)
        if len(features) <= k:
            raise ConfigError(f"k is {k} and {name} has {len(features)} rows; allowed: k below the number of rows")
    check_same_width("real", real_ND, "generated", generated_MD)
    return PrecisionRecall(
        precision=_share_inside(generated_MD, real_ND, _squared_radii(real_ND, k)),
        recall=_share_inside(real_ND, generated_MD, _squared_radii(generated_MD, k)),
    )


def _squared_radii(features_ND: Rows, k: int) -> Tensor:
    radii = []
    for points in row_blocks(features_ND, torch.float64, DISTANCE_TILE):
        nearest = torch.empty(len(points), 0, dtype=torch.float64)
        for distances in _squared_distances(points, features_ND):
            joined = torch.cat([nearest, distances], dim=1)
            # k + 1, because every sample finds itself.
            nearest = joined.topk(min(k + 1, joined.shape[1]), dim=1, largest=False).values
        radii.append(nearest[:, -1])
    return torch.cat(radii)


def _share_inside(points_MD: Rows, centres_ND: Rows, squared_radii_N: Tensor) -> float:
    inside = 0
    for points in row_blocks(points_MD, torch.float64, DISTANCE_TILE):
        covered = torch.zeros(len(points), dtype=torch.bool)
        tiles = zip(_squared_distances(points, centres_ND), squared_radii_N.split(DISTANCE_TILE))
        for distances, radii in tiles:
            covered |= (distances <= radii).any(dim=1)
        inside += int(covered.sum())
    return inside / len(points_MD)


def _squared_distances(points: Tensor, features: Rows) -> Iterator[Tensor]:
    """Squared distances to one tile of the features after another."""
    for start in range(0, len(features), DISTANCE_TILE):
        others = read_rows(features, start, start + DISTANCE_TILE, torch.float64)
        norms = points.square().sum(dim=1, keepdim=True) + others.square().sum(dim=1)
        yield torch.addmm(norms, points, others.T, alpha=-2).clamp(min=0)
