"""How uncertain is a number? Bootstrap and Student intervals, the interval of a correlation, and a sign-flip test.

Resampling N right-or-wrong answers with replacement gives a binomial count, so its bootstrap distribution is drawn
directly and costs nothing: no N x resamples matrix exists. Where all answers are right, or all wrong, every draw is the
same, and the exact interval takes its place. Samples that belong together are drawn together: tiles of
one file are no independent answers. Groups of one size with as many right answers are alike, and drawn as counts too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import NamedTuple

import torch
from torch import Tensor

from echoless.errors import ConfigError, DataError
from echoless.measures.inputs import check_count
from echoless.measures.splits import numbered

MOST_SEEDS = 20  # 2^20 sign patterns


class ConfidenceInterval(NamedTuple):
    """A value and the percentile interval around it."""

    value: float
    low: float
    high: float


def accuracy_interval(
    correct_N: Tensor,
    *,
    generator: torch.Generator,
    groups_N: Tensor | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
) -> ConfidenceInterval:
    """Percentile bootstrap interval of an accuracy; `correct_N` is True where a prediction was right.

    groups_N: samples of one group are drawn together. Where all are right, or all wrong, the interval is the exact one
    of a binomial: every draw is the same, so that the bootstrap has no width.
    """
    _check(correct_N)
    n = len(correct_N)
    share = correct_N.double().mean()
    if share in (0, 1):
        return _all_alike(float(share), n if groups_N is None else len(groups_N.unique()), level)
    if groups_N is not None:
        return _percentiles(float(share), _means_by_group(correct_N.long(), groups_N, resamples, generator), level)
    counts = torch.binomial(torch.full((resamples,), float(n)).double(), share.repeat(resamples), generator=generator)
    return _percentiles(float(share), counts / n, level)


def paired_accuracy_interval(
    base_N: Tensor,
    other_N: Tensor,
    *,
    generator: torch.Generator,
    groups_N: Tensor | None = None,
    level: float = 0.95,
    resamples: int = 10_000,
) -> ConfidenceInterval:
    """Percentile bootstrap interval of other minus base, two accuracies on the same images, drawn with both answers.

    Images that both get right, or both wrong, cancel out. Of the others, a draw has a multinomial count of each kind.
    groups_N: samples of one group are drawn together.
    """
    for answers_N in (base_N, other_N):
        _check(answers_N)
    if len(base_N) != len(other_N):
        raise DataError(f"base has {len(base_N)} answers and other {len(other_N)}; allowed: those of the same images")
    n, gained, lost = len(base_N), int((other_N & ~base_N).sum()), int((base_N & ~other_N).sum())
    if groups_N is not None:
        draws = _means_by_group(other_N.long() - base_N.long(), groups_N, resamples, generator)
        return _percentiles((gained - lost) / n, draws, level)
    up = torch.binomial(
        torch.full((resamples,), float(n)).double(), _repeated(gained / n, resamples), generator=generator
    )
    rest = lost / (n - gained) if gained < n else 0.0
    down = torch.binomial(n - up, _repeated(rest, resamples), generator=generator)
    return _percentiles((gained - lost) / n, (up - down) / n, level)


# Clopper and Pearson 1934, for as many successes (or failures) as trials.
def _all_alike(share: float, units: int, level: float) -> ConfidenceInterval:
    """The interval of a share of 1 or of 0 among so many independent units."""
    _check_level(level)
    least = ((1 - level) / 2) ** (1 / units)
    return ConfidenceInterval(share, share * least, 1 - (1 - share) * least)


def _means_by_group(values_N: Tensor, groups_N: Tensor, resamples: int, generator: torch.Generator) -> Tensor:
    """Means over the samples of as many groups as there are, drawn with replacement: multinomial counts of kinds."""
    group_N = numbered("groups", groups_N, len(values_N))
    sizes_G = group_N.bincount()
    sums_G = torch.zeros_like(sizes_G).index_add_(0, group_N, values_N)
    kinds, counts = torch.stack([sizes_G, sums_G], dim=1).unique(dim=0, return_counts=True)
    left, remaining = _repeated(len(sizes_G), resamples), len(sizes_G)
    total, summed = _repeated(0.0, resamples), _repeated(0.0, resamples)
    for (size, value), count in zip(kinds.tolist(), counts.tolist()):
        drawn = torch.binomial(left, _repeated(count / remaining, resamples), generator=generator)
        left, remaining = left - drawn, remaining - count
        total, summed = total + drawn * size, summed + drawn * value
    return summed / total


def _repeated(share: float, times: int) -> Tensor:
    return torch.full((times,), share, dtype=torch.float64)


def bootstrap_interval(
    statistic: Callable[[Tensor], float],
    n: int,
    *,
    generator: torch.Generator,
    level: float = 0.95,
    resamples: int = 200,
) -> ConfidenceInterval:
    """Percentile bootstrap interval of any statistic, a function of the indices of the samples drawn."""
    check_count("n", n)
    check_count("resamples", resamples)
    draws = [statistic(torch.randint(n, (n,), generator=generator)) for _ in range(resamples)]
    return _percentiles(statistic(torch.arange(n)), torch.tensor(draws, dtype=torch.float64), level)


def mean_interval(values: Sequence[float] | Tensor, *, level: float = 0.95) -> ConfidenceInterval:
    """Student's t interval of a mean over independent repetitions, one value per seed: two or more of them."""
    from scipy.stats import t

    seen = torch.as_tensor(values, dtype=torch.float64)
    if seen.ndim != 1 or len(seen) < 2 or not seen.isfinite().all():
        raise DataError(f"values is {seen.tolist()}; allowed: two or more finite numbers, one per seed")
    _check_level(level)
    mean, error = float(seen.mean()), float(seen.std() / len(seen) ** 0.5)
    reach = float(t.ppf((1 + level) / 2, len(seen) - 1)) * error
    return ConfidenceInterval(mean, mean - reach, mean + reach)


# Fisher 1921: atanh of a correlation over n pairs is nearly normal, with variance 1 / (n - 3).
def pearson_interval(correlation: float, n: int, level: float = 0.95) -> tuple[float, float]:
    """The interval of a correlation over n pairs; three pairs are too few for one, which is then [-1, 1]."""
    check_count("n", n, at_least=3)
    if not -1 <= correlation <= 1:
        raise DataError(f"correlation is {correlation!r}; allowed: a number from -1 to 1")
    if n == 3:
        return -1.0, 1.0
    if abs(correlation) == 1:
        return correlation, correlation
    reach = NormalDist().inv_cdf((1 + level) / 2) / math.sqrt(n - 3)
    return math.tanh(math.atanh(correlation) - reach), math.tanh(math.atanh(correlation) + reach)


def sign_flip_test(differences: Sequence[float] | Tensor) -> float:
    """Exact two-sided p-value of paired differences (one per seed) having mean zero.

    The share of all sign patterns whose mean is at least as far from 0 as the one seen; 3 seeds cannot go below 0.25.
    """
    values = torch.as_tensor(differences, dtype=torch.float64)
    if values.ndim != 1 or not 1 <= len(values) <= MOST_SEEDS or not values.isfinite().all():
        raise DataError(f"differences is {values.tolist()}; allowed: 1 to {MOST_SEEDS} finite numbers, one per seed")
    patterns = torch.arange(2 ** len(values)).unsqueeze(1) >> torch.arange(len(values)) & 1
    sums = ((1 - 2 * patterns).double() @ values).abs()
    # Patterns whose sums differ by rounding alone count as equal.
    return float((sums >= values.sum().abs() - 1e-12 * values.abs().sum()).double().mean())


def _percentiles(value: float, draws: Tensor, level: float) -> ConfidenceInterval:
    _check_level(level)
    tail = (1 - level) / 2
    low, high = draws.quantile(torch.tensor([tail, 1 - tail], dtype=torch.float64)).tolist()
    return ConfidenceInterval(value, low, high)


def _check(correct_N: Tensor) -> None:
    if correct_N.dtype != torch.bool or correct_N.ndim != 1 or len(correct_N) == 0:
        raise DataError(
            f"correct has type {correct_N.dtype} and shape {tuple(correct_N.shape)}; allowed: bool, one per sample"
        )


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ConfigError(f"level is {level!r}; allowed: a number between 0 and 1")
