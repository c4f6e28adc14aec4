"""How well do frozen features tell classes apart? kNN and linear probes on a test set, or in five folds without one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from echoless.errors import ConfigError, DataError
from echoless.evaluation.extract import FeatureSet
from echoless.measures import accuracy_interval, imagenet100_probe, knn_classify, quick_probe, stratified_folds
from echoless.randomness import generator_for
from echoless.reports.record import Metric

FOLDS = 5  # at most
PROBES = ("quick", "imagenet100")


@dataclass(frozen=True)
class Split:
    """Features and labels to learn from and to predict."""

    train_ND: np.ndarray
    train_labels_N: Tensor
    test_MD: np.ndarray
    test_labels_M: Tensor


def knn(train: FeatureSet, test: FeatureSet | None, *, ks: Sequence[int], seed: int, **protocol: Any) -> list[Metric]:
    """Cosine similarity, votes weighted by exp(similarity / 0.07): one metric for each k."""
    correct: dict[int, list[Tensor]] = {k: [] for k in ks}
    splits, how = _splits(train, test, seed)
    for split in splits:
        predictions = knn_classify(split.train_ND, split.train_labels_N, split.test_MD, k=list(ks))
        for k in ks:
            correct[k].append(predictions[k] == split.test_labels_M)
    described = {**protocol, **_view(train), "temperature": 0.07, **how}
    return [_metric("knn", torch.cat(correct[k]), seed, {**described, "k": k}) for k in ks]


def linear(train: FeatureSet, test: FeatureSet | None, *, probe: str, seed: int, **protocol: Any) -> Metric:
    """A linear classifier by one of the named protocols."""
    if probe not in PROBES:
        raise ConfigError(f"probe is {probe!r}; allowed: {', '.join(PROBES)}, mae")
    splits, how = _splits(train, test, seed)
    correct = []
    for index, split in enumerate(splits):
        generator = generator_for(seed, "probe", index + 1)
        if probe == "quick":
            trained = quick_probe(split.train_ND, split.train_labels_N, generator=generator)
        else:
            trained = imagenet100_probe(split.train_ND, split.train_labels_N, generator=generator)
        correct.append(trained.predict(split.test_MD) == split.test_labels_M)
    described = {**protocol, **_view(train), "probe": probe, **how}
    return _metric("linear", torch.cat(correct), seed, described)


def check_labels(train_N: Tensor, test_M: Tensor, class_names: Sequence[str] | None = None) -> None:
    """Every class of the test set must occur in the training set."""
    unseen = sorted(set(test_M.tolist()) - set(train_N.tolist()))
    if unseen:
        names = [class_names[label] if class_names and label < len(class_names) else str(label) for label in unseen]
        raise DataError(f"the test set has classes that the training set lacks: {', '.join(names[:10])}")


def fold_count(labels_N: Tensor) -> int:
    """Five, or the size of the typical class where that is less: each fold then still has it on both sides."""
    typical = int(labels_N.unique(return_counts=True)[1].median())
    if typical < 2:
        raise DataError(
            "most classes have one image, and without --test a class needs one to learn from and one to be judged on; "
            "allowed: two images or more in most classes, or --test"
        )
    return min(FOLDS, typical)


def _splits(train: FeatureSet, test: FeatureSet | None, seed: int) -> tuple[list[Split], dict[str, Any]]:
    assert train.labels_N is not None
    if test is not None:
        assert test.labels_N is not None
        whole = Split(train.features_ND, train.labels_N, test.features_ND, test.labels_N)
        return [whole], {"train_n": len(train.labels_N)}
    folds = fold_count(train.labels_N)
    fold_N = stratified_folds(train.labels_N, folds, generator=generator_for(seed, "probe", 0))
    splits = []
    for fold in range(folds):
        inside, outside = (fold_N != fold).nonzero().flatten(), (fold_N == fold).nonzero().flatten()
        splits.append(
            Split(
                train.features_ND[inside.numpy()],
                train.labels_N[inside],
                train.features_ND[outside.numpy()],
                train.labels_N[outside],
            )
        )
    return splits, {"train_n": len(train.labels_N), "folds": folds}


def _view(features: FeatureSet) -> dict[str, Any]:
    return {"layer": features.view.layer, "pooling": features.view.pooling}


def _metric(name: str, correct_M: Tensor, seed: int, protocol: dict[str, Any]) -> Metric:
    value, low, high = accuracy_interval(correct_M, generator=generator_for(seed, "probe", 1_000_000))
    return Metric(metric=name, value=value, n=len(correct_M), interval=(low, high), protocol={**protocol, "seed": seed})
