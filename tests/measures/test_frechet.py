"""Proves the distances between real and generated samples against closed forms, scipy and brute force.

Run alone: pytest tests/measures/test_frechet.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.linalg import sqrtm
from scipy.spatial.distance import cdist

from echoless.errors import ConfigError, DataError
from echoless.measures import (
    Moments,
    MomentsAccumulator,
    frechet_distance,
    frechet_interval,
    inception_score,
    moments,
    precision_recall,
)


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def gaussian(mean: list[float], covariance: list[list[float]]) -> Moments:
    return Moments(torch.tensor(mean).double(), torch.tensor(covariance).double(), 100)


def test_the_distance_between_known_gaussians_has_its_closed_form():
    one = gaussian([0.0, 0.0], [[4.0, 0.0], [0.0, 1.0]])
    two = gaussian([3.0, 4.0], [[1.0, 0.0], [0.0, 9.0]])
    assert frechet_distance(one, two) == pytest.approx(25 + (2 - 1) ** 2 + (1 - 3) ** 2, rel=1e-12)
    assert frechet_distance(two, one) == pytest.approx(30, rel=1e-12)
    assert frechet_distance(one, one) == pytest.approx(0, abs=1e-12)


def test_the_distance_equals_the_matrix_square_root_of_scipy():
    one, two = moments(normal(300, 12)), moments(normal(200, 12, seed=1) @ normal(12, 12, seed=2) + 0.5)
    root = sqrtm(one.covariance_DD.numpy() @ two.covariance_DD.numpy()).real
    gap = (one.mean_D - two.mean_D).square().sum().item()
    expected = gap + np.trace(one.covariance_DD.numpy() + two.covariance_DD.numpy() - 2 * root)
    assert frechet_distance(one, two) == pytest.approx(expected, rel=1e-9)


def test_fewer_samples_than_dimensions_are_no_trouble():
    features = normal(20, 64)
    assert frechet_distance(moments(features), moments(features)) == pytest.approx(0, abs=1e-5)
    shifted = frechet_distance(moments(features), moments(features + 1))
    assert shifted == pytest.approx(64, rel=1e-6)


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
def test_streamed_moments_are_those_of_numpy_even_far_from_zero(size):
    features = normal(1000, 6).double() * 0.01 + 1e4
    accumulator = MomentsAccumulator(6)
    for part in features.split(size):
        accumulator.update(part)
    found = accumulator.moments()
    assert found.n == 1000
    assert np.allclose(found.mean_D, features.mean(dim=0), rtol=1e-14)
    assert np.allclose(found.covariance_DD, np.cov(features.numpy(), rowvar=False), rtol=1e-7, atol=1e-12)


def test_the_same_features_give_the_same_digits_five_times():
    features, others = normal(500, 16), normal(400, 16, seed=1)
    assert len({frechet_distance(moments(features), moments(others)) for _ in range(5)}) == 1


def test_the_inception_score_is_one_for_equal_predictions_and_the_number_of_classes_for_perfect_ones():
    assert inception_score(torch.full((50, 10), 0.1), splits=5) == pytest.approx((1.0, 0.0))
    assert inception_score(torch.eye(10).repeat(5, 1), splits=5) == pytest.approx((10.0, 0.0))


def test_the_inception_score_follows_its_definition():
    p = normal(60, 5).softmax(dim=1).double().numpy()
    parts = [np.exp((q * np.log(q / q.mean(axis=0))).sum(axis=1).mean()) for q in np.split(p, 3)]
    expected = (np.mean(parts), np.std(parts))
    assert inception_score(torch.from_numpy(p), splits=3) == pytest.approx(expected, rel=1e-9)


def by_brute_force(real: np.ndarray, generated: np.ndarray, k: int) -> tuple[float, float]:
    def inside(points: np.ndarray, centres: np.ndarray) -> float:
        radii = np.sort(cdist(centres, centres), axis=1)[:, k]
        return float((cdist(points, centres) <= radii).any(axis=1).mean())

    return inside(generated, real), inside(real, generated)


def test_precision_and_recall_are_those_of_brute_force_over_several_tiles(monkeypatch):
    monkeypatch.setattr("echoless.measures.frechet.DISTANCE_TILE", 37)
    real, generated = normal(150, 4), normal(90, 4, seed=1) * 0.7 + 0.5
    expected = by_brute_force(real.double().numpy(), generated.double().numpy(), 3)
    assert precision_recall(real, generated) == pytest.approx(expected)
    assert 0 < expected[1] < expected[0] < 1


def test_equal_sets_have_precision_and_recall_one_and_distant_ones_zero():
    real = normal(60, 3)
    assert precision_recall(real, real) == (1.0, 1.0)
    assert precision_recall(real, real + 100) == (0.0, 0.0)


def test_bad_input_is_refused_with_a_sentence():
    with pytest.raises(DataError, match="do not sum to 1"):
        inception_score(torch.ones(20, 3))
    with pytest.raises(ConfigError, match="k is 3 and real has 3 rows"):
        precision_recall(normal(3, 2), normal(9, 2))
    with pytest.raises(DataError, match="2 and 3 dimensions"):
        frechet_distance(moments(normal(9, 2)), moments(normal(9, 3)))
    with pytest.raises(DataError, match="not finite"):
        Moments(torch.tensor([math.nan]), torch.eye(1), 5)
    with pytest.raises(DataError, match="2 or more"):
        moments(normal(1, 3))


def test_the_interval_stays_around_the_value_and_covers_the_truth_about_as_often_as_it_says():
    """Between two Gaussians of 8 dimensions whose distance is known, n large enough for the bias to be small."""
    shift = 0.5
    truth = gaussian([0.0] * 8, torch.eye(8).tolist())
    hits, repetitions = 0, 20
    for seed in range(repetitions):
        drawn = normal(1000, 8, seed=seed) + shift
        generator = torch.Generator().manual_seed(seed)
        value, low, high = frechet_interval(drawn, truth, generator=generator, resamples=40)
        assert value == pytest.approx(frechet_distance(truth, moments(drawn)), rel=1e-9)
        assert low < value < high
        hits += low <= 8 * shift**2 <= high
    print(f"frechet_interval: 95 % intervals cover the truth in {hits} of {repetitions} draws")
    assert hits >= 0.8 * repetitions


def test_the_interval_of_few_samples_is_around_their_distance_and_not_around_that_of_resamples():
    """A resample repeats rows: of 30 samples in 8 dimensions nearly all of them lie farther away than the samples."""
    rows, truth = normal(30, 8), gaussian([0.0] * 8, torch.eye(8).tolist())
    generator = torch.Generator().manual_seed(0)
    draws = [rows[torch.randint(30, (30,), generator=generator)] for _ in range(50)]
    farther = [frechet_distance(truth, moments(draw)) for draw in draws]
    value, low, high = frechet_interval(rows, truth, generator=generator)
    assert np.quantile(farther, 0.05) > value and low < value < high
