"""A measurement is not made twice, and never taken for another: what decides it is in its name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from echoless.evaluation import outcome_cache
from echoless.evaluation.classify import knn
from echoless.evaluation.extract import FeatureSet, View
from echoless.evaluation.outcome_cache import cached_outcome


@pytest.fixture
def features(tmp_path) -> FeatureSet:
    rows = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    (tmp_path / "home").mkdir()
    return FeatureSet(View("block00"), rows, torch.arange(60), torch.arange(60) % 3, tmp_path / "home")


class Counted:
    """A measurement that says how often it was made."""

    def __init__(self) -> None:
        self.made = 0

    def __call__(self) -> np.ndarray:
        self.made += 1
        return np.array([self.made, 7.0])


def test_the_same_question_is_answered_once(features):
    measure = Counted()
    answers = [cached_outcome([features], "knn", (2,), measure) for _ in range(3)]
    assert measure.made == 1
    assert all(np.array_equal(answer, [1.0, 7.0]) for answer in answers)


def test_another_question_is_measured_again(features, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    measure = Counted()
    cached_outcome([features], "knn", (2,), measure)
    cached_outcome([features], "linear", (2,), measure)
    cached_outcome([replace(features, labels_N=1 - features.labels_N)], "knn", (2,), measure)
    cached_outcome([replace(features, home=tmp_path / "other")], "knn", (2,), measure)
    cached_outcome([features, features], "knn", (2,), measure)
    cached_outcome([replace(features, groups_N=torch.arange(60) // 2)], "knn", (2,), measure)
    cached_outcome([replace(features, groups_N=torch.arange(60) // 3)], "knn", (2,), measure)
    monkeypatch.setattr(outcome_cache, "_code", lambda: "another version of the measures")
    cached_outcome([features], "knn", (2,), measure)
    assert measure.made == 8


def test_features_that_are_not_in_a_cache_are_measured_every_time(features):
    measure = Counted()
    for _ in range(2):
        cached_outcome([replace(features, home=None)], "knn", (2,), measure)
    assert measure.made == 2


@pytest.mark.parametrize("damage", [b"", b"\x93NUMPY", b"not an array", "shape", "zeros"])
def test_a_damaged_outcome_is_measured_again_and_replaced(features, damage):
    measure = Counted()
    cached_outcome([features], "knn", (2,), measure)
    (file,) = features.home.glob("outcome-*.npy")
    if damage == "shape":
        np.save(file, np.zeros(5))
    elif damage == "zeros":  # a faulty disk: a right header, and an accuracy of 0
        file.write_bytes(file.read_bytes()[:128] + bytes(file.stat().st_size - 128))
    else:
        file.write_bytes(damage)
    cached_outcome([features], "knn", (2,), measure)
    cached_outcome([features], "knn", (2,), measure)
    assert measure.made == 2


def test_choosing_on_fewer_rows_says_how_many(features):
    (whole,) = knn(features, None, ks=[3], seed=0)
    (part,) = knn(features, None, ks=[3], seed=0, most=30)
    assert (whole.n, whole.protocol["train_n"]) == (60, 60)
    assert (part.n, part.protocol["train_n"]) == (30, 30)
