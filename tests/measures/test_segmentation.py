"""Proves the matching of clusters to classes against every permutation, and mIoU against scikit-learn.

Run alone: pytest tests/measures/test_segmentation.py.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
from sklearn.metrics import jaccard_score

from echoless.errors import DataError
from echoless.measures import (
    cluster_tokens,
    confusion_matrix,
    hungarian_miou,
    labelled_miou,
    many_to_one_miou,
    upsample_labels,
)


@pytest.mark.parametrize("classes", [1, 2, 3, 4, 5, 6])
def test_the_assignment_is_the_best_of_all_permutations(classes):
    confusion = torch.randint(0, 10_000, (classes, classes), generator=torch.Generator().manual_seed(classes))
    best = max(permutations(range(classes)), key=lambda p: sum(int(confusion[i, c]) for i, c in enumerate(p)))
    iou = []
    for cluster, label in enumerate(best):
        right = int(confusion[cluster, label])
        iou.append(right / (int(confusion[cluster].sum()) + int(confusion[:, label].sum()) - right))
    found = hungarian_miou(confusion)
    assert tuple(found.class_of_cluster.tolist()) == best
    assert found.miou == pytest.approx(np.mean(iou), rel=1e-12)


def test_miou_is_the_mean_jaccard_index_of_scikit_learn():
    generator = torch.Generator().manual_seed(0)
    truth = torch.randint(0, 4, (3, 8, 8), generator=generator)
    guess = torch.where(torch.rand(3, 8, 8, generator=generator) < 0.6, truth, 3 - truth)
    renamed = torch.tensor([2, 0, 3, 1])[guess]
    found = hungarian_miou(confusion_matrix(renamed, truth, 4, 4))
    expected = jaccard_score(truth.flatten(), guess.flatten(), average="macro")
    assert found.miou == pytest.approx(expected, rel=1e-12)
    assert found.class_of_cluster.tolist() == [1, 3, 0, 2]


def test_void_pixels_are_ignored():
    truth = torch.tensor([0, 0, 1, 1, -1, -1])
    assert hungarian_miou(confusion_matrix(torch.tensor([1, 1, 0, 0, 1, 0]), truth, 2, 2)).miou == 1.0
    assert confusion_matrix(torch.tensor([1, 1, 0, 0, 1, 0]), truth, 2, 2).sum() == 4


def test_many_to_one_joins_clusters_that_the_hungarian_match_must_leave_out():
    truth = torch.tensor([0] * 6 + [1] * 6)
    guess = torch.tensor([0] * 4 + [1] * 2 + [2] * 6)
    confusion = confusion_matrix(guess, truth, 3, 2)
    assert many_to_one_miou(confusion).miou == 1.0
    assert hungarian_miou(confusion).miou == pytest.approx((4 / 6 + 1) / 2)
    assert hungarian_miou(confusion).class_of_cluster.tolist() == [0, -1, 1]


def test_classes_that_occur_nowhere_do_not_count():
    confusion = confusion_matrix(torch.tensor([0, 1]), torch.tensor([0, 1]), 2, 5)
    assert hungarian_miou(confusion).miou == 1.0


def test_labels_are_enlarged_by_the_nearest_one():
    small = torch.tensor([[[0, 1], [2, 3]]])
    assert upsample_labels(small, 4, 4).equal(small.repeat_interleave(2, 1).repeat_interleave(2, 2))


def test_clusters_are_the_same_for_the_same_seed():
    points = torch.randn(500, 4, generator=torch.Generator().manual_seed(0))
    assert cluster_tokens(points, 3, seed=1).equal(cluster_tokens(points, 3, seed=1))


def test_bad_masks_are_refused_with_a_sentence():
    with pytest.raises(DataError, match="void pixels only"):
        confusion_matrix(torch.zeros(3).long(), torch.full((3,), -1), 2, 2)
    with pytest.raises(DataError, match=r"masks holds 0 .. 7; allowed: 0 .. 1"):
        confusion_matrix(torch.zeros(2).long(), torch.tensor([0, 7]), 2, 2)
    with pytest.raises(DataError, match=r"have shapes .*; they must be equal"):
        confusion_matrix(torch.zeros(2).long(), torch.zeros(3).long(), 2, 2)


def test_a_class_that_is_predicted_and_nowhere_in_the_masks_counts_as_zero():
    truth, guess = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 0, 1, 2])
    expected = jaccard_score(truth, guess, average="macro")
    assert expected == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert labelled_miou(confusion_matrix(guess, truth, 4, 4)) == pytest.approx(expected, rel=1e-12)
