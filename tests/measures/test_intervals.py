"""Proves the bootstrap intervals against resampling written out, closed forms and scipy.

Run alone: pytest tests/measures/test_intervals.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest, bootstrap, pearsonr, permutation_test

from echoless.errors import ConfigError, DataError
from echoless.measures import (
    accuracy_interval,
    bootstrap_interval,
    pearson_interval,
    sign_flip_test,
)
from echoless.measures.intervals import paired_accuracy_interval


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def outcomes(n: int, share: float, seed: int) -> torch.Tensor:
    return torch.rand(n, generator=generator(seed)) < share


def test_the_interval_of_an_accuracy_is_the_binomial_one():
    correct = outcomes(2000, 0.7, 1)
    value, low, high = accuracy_interval(correct, generator=generator())
    share = correct.double().mean().item()
    expected = binom.ppf([0.025, 0.975], 2000, share) / 2000
    assert value == share
    assert np.abs(np.array([low, high]) - expected).max() < 1.5e-3


@pytest.mark.parametrize("level", [0.95, 0.8])
@pytest.mark.parametrize(("n", "units"), [(1, 1), (50, 50), (300, 300), (300, 18)])
def test_where_all_are_right_or_wrong_the_interval_is_the_exact_one_over_independent_units(n, units, level):
    """300 right answers do not prove that the next is right; 300 frames of 18 films prove as much as 18 answers."""
    right = torch.ones(n, dtype=torch.bool)
    asked = {"generator": generator(), "level": level} | ({} if units == n else {"groups_N": torch.arange(n) % units})
    for answers, successes in ((right, units), (~right, 0)):
        theirs = binomtest(successes, units).proportion_ci(level, method="exact")
        found = accuracy_interval(answers, **asked)
        assert found == pytest.approx((successes / units, theirs.low, theirs.high), abs=1e-9)
        assert found.high > found.low


def test_any_statistic_can_be_resampled_and_a_seed_repeats_it():
    values = torch.randn(400, generator=generator(3))
    found = bootstrap_interval(lambda i: float(values[i].mean()), 400, generator=generator(), resamples=2000)
    spread = values.std().item() / 20
    assert found.low == pytest.approx(found.value - 1.96 * spread, abs=0.3 * spread)
    assert found.high == pytest.approx(found.value + 1.96 * spread, abs=0.3 * spread)
    again = bootstrap_interval(lambda i: float(values[i].mean()), 400, generator=generator(), resamples=2000)
    assert found == again


@pytest.mark.parametrize("differences", [[0.3, 0.1, 0.2], [0.3, -0.1, 0.2, 0.5, -0.4], [0.0, 0.0], [1.0]])
def test_the_sign_flip_test_is_the_exact_one_of_scipy(differences):
    expected = 1.0
    if any(differences) and len(differences) > 1:
        values = np.array(differences)
        result = permutation_test(
            (values,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
        )
        expected = result.pvalue
    assert sign_flip_test(differences) == pytest.approx(expected)


@pytest.mark.parametrize("paired", [False, True])
def test_samples_of_a_group_are_drawn_together_as_scipy_does(paired):
    """30 files of 1 to 40 tiles; within a file, all answers but a few are the same."""
    draw = np.random.default_rng(0)
    sizes = draw.integers(1, 41, 30)
    groups = np.repeat(np.arange(30), sizes)
    base, other = ((draw.random(30) < 0.6)[groups] ^ (draw.random(len(groups)) < 0.1) for _ in range(2))
    values = other.astype(int) - base if paired else other.astype(int)
    sums = np.bincount(groups, values)
    shuffled = torch.from_numpy(draw.permutation(len(groups)))
    answers = [torch.from_numpy(each)[shuffled] for each in ((base, other) if paired else (other,))]
    interval = paired_accuracy_interval if paired else accuracy_interval
    asked = {"generator": generator(), "groups_N": 100 + torch.from_numpy(groups)[shuffled]}
    value, low, high = interval(*answers, **asked)
    theirs = bootstrap(
        (sums, sizes),
        lambda sums, sizes, axis: sums.sum(axis=axis) / sizes.sum(axis=axis),
        paired=True,
        method="percentile",
        rng=draw,
    ).confidence_interval
    alone = interval(*answers, generator=generator())
    print(f"by group [{low:.3f}, {high:.3f}], scipy [{theirs.low:.3f}, {theirs.high:.3f}], by sample {alone[1:]}")
    assert value == pytest.approx(values.mean())
    assert (low, high) == pytest.approx((theirs.low, theirs.high), abs=0.01)
    assert high - low > 3 * (alone.high - alone.low), "as if every tile were an image of its own"


def test_what_is_not_right_or_wrong_is_refused():
    with pytest.raises(DataError, match="allowed: bool"):
        accuracy_interval(torch.ones(3), generator=generator())


@pytest.mark.parametrize("n", [3, 4, 12, 200])
def test_the_interval_of_a_correlation_is_that_of_scipy(n):
    x = np.random.default_rng(0).normal(size=n)
    y = 0.5 * x + np.random.default_rng(1).normal(size=n)
    found = pearsonr(x, y)
    theirs = found.confidence_interval(0.95)
    assert pearson_interval(float(found.statistic), n) == pytest.approx((theirs.low, theirs.high), abs=1e-9)


@pytest.mark.parametrize(("correlation", "n"), [(1.2, 10), (float("nan"), 10), (0.5, 2)])
def test_a_correlation_that_cannot_be_has_no_interval(correlation, n):
    with pytest.raises((DataError, ConfigError), match="allowed"):
        pearson_interval(correlation, n)
