"""Cross-validation never predicts an image that it learned from, nor a copy or another tile of it.

Run alone: pytest tests/evaluation/test_folds.py
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from echoless.errors import DataError
from echoless.evaluation.classify import describe_small_classes, fold_count, knn, linear
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


def tiles(files: int, of_each: int, *, own: float) -> FeatureSet:
    """Noise around a place of its own for each file, whose label is drawn: whoever has seen a tile knows the others."""
    draw = np.random.default_rng(0)
    file_N = torch.arange(files).repeat_interleave(of_each)
    features = own * draw.normal(size=(files, 32))[file_N] + draw.normal(size=(len(file_N), 32))
    labels = torch.from_numpy(draw.permutation(np.arange(files) % 4))[file_N]
    return FeatureSet(View("output"), features.astype(np.float32), torch.arange(len(file_N)), labels, groups_N=file_N)


def test_tiles_of_a_file_and_copies_of_an_image_stay_in_one_fold():
    for features in (tiles(40, 16, own=3.0), tiles(120, 2, own=1e3)):
        (near,), probed = knn(features, None, ks=(1,), seed=0), linear(features, None, probe="quick", seed=0)
        (leaked,) = knn(replace(features, groups_N=None), None, ks=(1,), seed=0)
        print(f"kNN {near.value:.3f}, linear {probed.value:.3f}, kNN with groups split {leaked.value:.3f}")
        assert near.n == len(features.ids_N) and leaked.value > 0.7
        assert near.value < 0.45 and probed.value < 0.45, "labels that were drawn cannot be known"
        assert near.interval[1] - near.interval[0] > 1.3 * (leaked.interval[1] - leaked.interval[0])


def test_a_test_set_of_tiles_has_the_interval_of_its_files():
    test = tiles(40, 16, own=3.0)
    by_file, by_tile = (knn(noise32(), each, ks=(1,), seed=0)[0] for each in (test, replace(test, groups_N=None)))
    assert by_file.value == by_tile.value and by_file.n == 640
    widths = [metric.interval[1] - metric.interval[0] for metric in (by_file, by_tile)]
    assert widths[0] > 1.5 * widths[1]


def noise32() -> FeatureSet:
    return replace(noise(200, 4), features_ND=noise(200, 4).features_ND[:, :32])


def test_too_few_images_of_a_class_for_the_folds_are_said():
    """Labels that were drawn were "predicted" far below chance, and nothing was said: a fold takes its classes away."""
    labels, names = torch.arange(40) % 4, ("ant", "bee", "cat", "dog")
    assert describe_small_classes(labels, None, names) == ""
    assert describe_small_classes(labels[:37], None, names) == (
        "folds: class 'bee' has 9 images for 5 folds, which may leave too few to learn from: accuracies may lie below "
        "chance; label 10 or more of every class, or give --test"
    )
    assert "class 'ant' has 5 different files for 5 folds" in describe_small_classes(
        labels, torch.arange(40) // 8 * 4 + labels, names
    )


def test_folds_are_as_many_as_files_of_the_typical_class():
    labels, files = torch.arange(12) // 6, torch.arange(12) // 2  # three files of two tiles in each class
    assert fold_count(labels) == 5 and fold_count(labels, files) == 3
    with pytest.raises(DataError, match=r"most classes have the tiles of a single file.*; give --test, or two or more"):
        fold_count(labels, labels)
