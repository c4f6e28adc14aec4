"""Cross-validation never predicts an image that it learned from.

Run alone: pytest tests/evaluation/test_folds.py
"""

from __future__ import annotations

import numpy as np
import torch

from echoless.evaluation.classify import knn, linear
from echoless.evaluation.extract import FeatureSet, View


def noise(count: int, classes: int) -> FeatureSet:
    """Features that know nothing of the labels, but are all different: whoever has seen a row knows its label."""
    draw = np.random.default_rng(0)
    features = draw.normal(size=(count, 256)).astype(np.float32)
    labels = torch.from_numpy(draw.permutation(np.arange(count) % classes))
    return FeatureSet(View("output"), features, torch.arange(count), labels)


def test_nearest_neighbours_of_noise_are_at_chance():
    (metric,) = knn(noise(400, 4), None, ks=(1,), seed=0)
    assert metric.protocol["folds"] == 5 and abs(metric.value - 0.25) < 0.1


def test_a_probe_on_noise_is_at_chance_although_it_could_learn_every_row():
    metric = linear(noise(200, 4), None, probe="quick", seed=0)
    assert metric.protocol["folds"] == 5 and abs(metric.value - 0.25) < 0.12
