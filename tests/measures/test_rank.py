"""Proves the three ranks against numpy.cov, hand-computed spectra and each other's definitions.

Run alone: pytest tests/measures/test_rank.py.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr

from echoless.errors import DataError
from echoless.measures import pearson, rank_centered, rank_paper, rankme


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def entropy(weights: np.ndarray) -> float:
    p = weights[weights > 0] / weights.sum()
    return float(-(p * np.log(p)).sum())


def by_definition(features: torch.Tensor) -> dict[str, float]:
    x = features.double().numpy()
    s = np.linalg.svd(x, compute_uv=False)
    p = s / s.sum() + 1e-7
    return {
        "rank_paper": entropy(np.linalg.svd(np.cov(x), compute_uv=False)),
        "rank_centered": entropy(np.linalg.svd(np.cov(x, rowvar=False), compute_uv=False)),
        "rankme": float(np.exp(-(p * np.log(p)).sum())),
    }


@pytest.mark.parametrize("shape", [(40, 12), (12, 40), (30, 30), (600, 16)])
def test_each_rank_follows_its_definition(shape):
    features = normal(*shape) * torch.logspace(0, -2, shape[1]) + 0.3
    expected = by_definition(features)
    for function in (rank_paper, rank_centered, rankme):
        assert function(features) == pytest.approx(expected[function.__name__], rel=1e-9), function.__name__


def test_blocks_of_rows_join_into_the_spectrum_of_the_whole():
    features = normal(9001, 10) * torch.arange(1, 11)
    centred = features.double() - features.double().mean(dim=0)
    expected = entropy(np.linalg.eigvalsh(np.cov(centred.numpy(), rowvar=False)))
    assert rank_centered(features) == pytest.approx(expected, rel=1e-10)


def test_identity_has_the_logarithm_of_its_rank():
    """Centring the rows or the columns of the identity leaves n - 1 equal directions; uncentred it has n."""
    identity = torch.eye(16)
    assert rank_paper(identity) == pytest.approx(math.log(15), abs=1e-12)
    assert rank_centered(identity) == pytest.approx(math.log(15), abs=1e-12)
    assert rankme(identity) == pytest.approx(16, rel=1e-4)


def test_rank_one_has_entropy_zero():
    one = torch.outer(normal(50), normal(20))
    assert rank_paper(one.double()) == pytest.approx(0.0, abs=1e-12)
    assert rank_centered(one.double()) == pytest.approx(0.0, abs=1e-12)
    assert rankme(one) == pytest.approx(1.0, abs=1e-3)


def test_a_diagonal_spectrum_gives_its_entropy():
    """Rows +-d_i e_i have column mean 0 and a diagonal covariance d_i^2; rows (d_i, -d_i) have row mean 0."""
    scales = torch.tensor([3.0, 2.0, 1.0])
    weights = np.array([9.0, 4.0, 1.0])
    assert rank_centered(torch.cat([scales.diag(), -scales.diag()])) == pytest.approx(entropy(weights), abs=1e-12)
    assert rank_paper(torch.cat([scales.diag(), -scales.diag()], dim=1)) == pytest.approx(entropy(weights), abs=1e-12)
    expected = math.exp(entropy(np.array([3.0, 2.0, 1.0])))
    assert rankme(scales.diag()) == pytest.approx(expected, rel=1e-5)


def test_the_paper_rank_ignores_a_constant_added_to_a_token_and_the_centred_rank_one_added_to_a_feature():
    features = normal(60, 15).double()
    assert rank_paper(features + normal(60, 1) * 10) == pytest.approx(rank_paper(features), rel=1e-9)
    assert rank_centered(features + normal(1, 15) * 10) == pytest.approx(rank_centered(features), rel=1e-9)


def test_collapsed_features_have_rank_zero_not_the_entropy_of_rounding():
    assert rank_centered(normal(1, 12).repeat(500, 1)) == 0.0
    assert rank_paper(normal(500, 1).repeat(1, 12)) == 0.0


def test_digits_are_identical_over_runs_and_batch_sizes(tmp_path):
    features = normal(4500, 24)
    values = set()
    for size in (1, 7, 64):
        np.save(tmp_path / "features.npy", torch.cat(features.split(size)).numpy())
        mapped = np.load(tmp_path / "features.npy", mmap_mode="r")
        for _ in range(5):
            values.add((rank_paper(mapped), rank_centered(mapped), rankme(mapped)))
    values.add((rank_paper(features), rank_centered(features), rankme(features)))
    print(f"R20 rank runs=16 distinct={len(values)}")
    assert len(values) == 1


def test_pearson_is_that_of_scipy():
    x, y = normal(30), normal(30, seed=1)
    assert pearson(x, y) == pytest.approx(pearsonr(x.double(), y.double()).statistic, rel=1e-9)
    assert pearson([1, 2, 3], [-2, -4, -6]) == pytest.approx(-1.0)


@pytest.mark.parametrize("pair", [([1.0, 1.0], [1.0, 2.0]), ([1.0], [1.0]), ([1.0, 2.0], [1.0, 2.0, 3.0])])
def test_a_correlation_that_does_not_exist_is_refused(pair):
    with pytest.raises(DataError, match="allowed"):
        pearson(*pair)


def test_non_finite_features_are_refused():
    with pytest.raises(DataError, match="not finite in row 3"):
        rank_paper(torch.tensor([[1.0, 2.0]] * 3 + [[1.0, math.inf]]))


def test_rows_that_differ_by_rounding_alone_have_rank_zero():
    """Multiples of one vector, each divided by its own norm: equal but for the last bits, which are no variance."""
    lengths, direction = normal(500, 1).double().exp(), normal(1, 12, seed=1).double()
    rows = torch.nn.functional.normalize(lengths * direction)
    assert len(rows.unique(dim=0)) > 1
    assert rank_centered(rows) == 0.0 and rank_paper(rows.T - rows.T.mean(dim=1, keepdim=True) + lengths[:12]) == 0.0
