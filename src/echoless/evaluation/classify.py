"""How well do frozen features tell classes apart? kNN and linear probes on a test set, or in five folds without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from echoless.config.checks import require, require_whole
from echoless.config.counts import counted, listed
from echoless.config.metrics import Metric
from echoless.errors import ConfigError, DataError
from echoless.evaluation.augmented import mae_linear
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.extract import FeatureSet
from echoless.evaluation.outcome_cache import cached_outcome
from echoless.measures import (
    LinearProbe,
    accuracy_interval,
    imagenet100_probe,
    knn_classify,
    quick_probe,
    stratified_folds,
)
from echoless.measures.outcomes import kept
from echoless.measures.splits import groups_per_class
from echoless.randomness import generator_for
from echoless.runtime import Progress

FOLDS = 5  # at most
ROWS_DRAW = 2_000_000  # place in the stream of the draw of rows
PROBES = ("quick", "imagenet100")


@dataclass(frozen=True)
class Split:
    """Features and labels to learn from and to predict; `train_groups_N`: which rows to learn from belong together."""

    train_ND: np.ndarray
    train_labels_N: Tensor
    train_groups_N: Tensor | None
    test_MD: np.ndarray
    test_labels_M: Tensor


def check_knn(evaluation: Evaluation) -> None:
    for k in evaluation.options.k:
        require_whole("k", k, 1)
    if sentence := _too_many_neighbours(evaluation):
        evaluation.say(sentence)


def _too_many_neighbours(evaluation: Evaluation) -> str:
    """A warning where k neighbours cannot all be of one class: the vote then counts other classes in any case."""
    train = evaluation.train
    assert train.labels is not None
    labels_N, groups_N = train.labels[train.usable_ids()], train.groups_of(train.usable_ids())
    folds = fold_count(labels_N, groups_N) if evaluation.test is None else None
    typical = int(labels_N.unique(return_counts=True)[1].median())
    learned = typical if folds is None else typical - -(-typical // folds)
    too_many = [k for k in evaluation.options.k if k >= max(2, learned)]  # with one, nobody else votes
    if not too_many:
        return ""
    where = "" if folds is None else f" in each of {folds} folds"
    there = counted(learned, "training image")
    return (
        f"knn: k is {', '.join(map(str, too_many))}, but a typical class has {there}{where}: nearly every vote then "
        f"includes images of other classes (the nearest images count most); --k {max(1, learned // 2)} asks fewer"
    )


def measure_knn(source: FeatureSource) -> list[Metric]:
    options, view = source.evaluation.options, source.view
    test = source.test[view] if source.test else None
    return knn(source.train[view], test, ks=options.k, seed=options.seed, **source.protocol)


def check_linear(evaluation: Evaluation) -> None:
    if "mae" in evaluation.options.probe:
        allowed = "give --test, because it retrains on augmented images"
        require(evaluation.test is not None, "probe", "mae without --test", allowed)


def measure_linear(source: FeatureSource) -> list[Metric]:
    options, metrics = source.evaluation.options, []
    for probe in options.probe:
        if probe != "mae":
            view = source.probe_view(probe)
            test = source.test[view] if source.test else None
            metrics.append(linear(source.train[view], test, probe=probe, seed=options.seed, **source.protocol))
    return [*metrics, _mae_probe(source)] if "mae" in options.probe and source.name == "trained" else metrics


def _mae_probe(source: FeatureSource) -> Metric:
    assert source.test is not None
    view, originals = source.probe_view("mae"), source.evaluation.originals
    epochs = mae_epochs(source.encoder.depth)
    with Progress("mae probe", epochs, "epochs") as progress:
        return mae_linear(
            source.encoder,
            source.evaluation.train if originals is None else originals(),
            source.test[view],
            view=view,
            seed=source.evaluation.options.seed,
            epochs=epochs,
            workers=source.evaluation.options.workers,
            report=lambda done, total: progress.show(done),
            **source.protocol,
        )


# The linear probe of arXiv:2111.06377, as its authors run it.
def mae_epochs(depth: int) -> int:
    """90 for a ViT-B, 50 for the deeper ViT-L and ViT-H."""
    return 50 if depth >= 24 else 90


def knn(
    train: FeatureSet,
    test: FeatureSet | None,
    *,
    ks: Sequence[int],
    seed: int,
    most: int | None = None,
    **protocol: Any,
) -> list[Metric]:
    """Cosine similarity, votes weighted by exp(similarity / 0.07): one metric for each k.

    most: learn from at most so many rows, drawn once; the metric's `train_n` says how many.
    """
    rows_N = _rows(train, most, seed)

    def measure() -> np.ndarray:
        correct = []
        for split in _splits(train, test, rows_N, seed):
            predictions = knn_classify(split.train_ND, split.train_labels_N, split.test_MD, k=list(ks))
            correct.append(torch.stack([predictions[k] == split.test_labels_M for k in ks]))
        return torch.cat(correct, dim=1).numpy()

    predicted, split = _split_protocol(train, test, rows_N)
    settings = ("knn", list(ks), len(rows_N), seed)
    correct_KM = cached_outcome(_sets(train, test), settings, (len(ks), predicted), measure)
    protocol = {**protocol, **_view(train), "temperature": 0.07, **split}
    groups_M = _predicted_groups(train, test, rows_N, seed)
    return [
        _accuracy("knn", torch.from_numpy(row), groups_M, seed, {**protocol, "k": k}) for k, row in zip(ks, correct_KM)
    ]


def linear(train: FeatureSet, test: FeatureSet | None, *, probe: str, seed: int, **protocol: Any) -> Metric:
    """A linear classifier by one of the named protocols."""
    if probe not in PROBES:
        raise ConfigError(f"probe is {probe!r}; allowed: {', '.join(PROBES)}, mae")
    rows_N = _rows(train, None, seed)

    def measure() -> np.ndarray:
        correct = []
        for index, split in enumerate(_splits(train, test, rows_N, seed)):
            learn: Callable[..., LinearProbe] = imagenet100_probe
            if probe == "quick":
                learn = partial(quick_probe, groups_N=split.train_groups_N)
            trained = learn(split.train_ND, split.train_labels_N, generator=generator_for(seed, "probe", index + 1))
            correct.append(trained.predict(split.test_MD) == split.test_labels_M)
        return torch.cat(correct).numpy()

    predicted, split = _split_protocol(train, test, rows_N)
    correct_M = cached_outcome(_sets(train, test), ("linear", probe, seed), (predicted,), measure)
    protocol = {**protocol, **_view(train), "probe": probe, **split}
    return _accuracy(
        "linear", torch.from_numpy(correct_M), _predicted_groups(train, test, rows_N, seed), seed, protocol
    )


def check_labels(train_N: Tensor, test_M: Tensor, class_names: Sequence[str] | None = None) -> None:
    """Every class of the test set must occur in the training set."""
    unseen = sorted(set(test_M.tolist()) - set(train_N.tolist()))
    if unseen:
        names = [class_names[label] if class_names and label < len(class_names) else str(label) for label in unseen]
        raise DataError(f"the test set has classes that the training set lacks: {listed(names[:10])}")


def fold_count(labels_N: Tensor, groups_N: Tensor | None = None) -> int:
    """Five, or the size of the typical class where that is less: each fold then still has it on both sides.

    groups_N: images of one group stay together, and it is groups that are counted.
    """
    typical = int(groups_per_class(labels_N, groups_N).median())
    if typical < 2:
        single, several = "a single image", "two or more images"
        if groups_N is not None:
            single, several = "the tiles of a single file, or copies of a single image", "two or more different files"
        raise DataError(
            f"most classes have {single}, which cross-validation cannot split; give --test, or {several} of most "
            "classes"
        )
    return min(FOLDS, typical)


def describe_small_classes(labels_N: Tensor, groups_N: Tensor | None, class_names: Sequence[str]) -> str:
    """A warning where a class has fewer than two images for each fold; nothing where every class has enough."""
    folds, counts_C = fold_count(labels_N, groups_N), groups_per_class(labels_N, groups_N)
    if (fewest := int(counts_C.min())) >= 2 * folds:
        return ""
    name = class_names[int(labels_N.unique()[counts_C.argmin()])]
    what = "image" if groups_N is None else "different file"
    return (
        f"folds: class {name!r} has {counted(fewest, what)} for {folds} folds, which may leave too few to learn from: "
        f"accuracies may lie below chance; label {2 * FOLDS} or more of every class, or give --test"
    )


def _rows(train: FeatureSet, most: int | None, seed: int) -> Tensor:
    """Which rows are learned from, in order: all of them, or the same draw for every view of the same images."""
    count = len(train.ids_N)
    if most is None or count <= most:
        return torch.arange(count)
    return torch.randperm(count, generator=generator_for(seed, "probe", ROWS_DRAW))[:most].sort().values


def _split_protocol(train: FeatureSet, test: FeatureSet | None, rows_N: Tensor) -> tuple[int, dict[str, Any]]:
    """How many images are predicted, and what the protocol says of the split."""
    if test is not None:
        return len(test.ids_N), {"train_n": len(rows_N)}
    assert train.labels_N is not None
    folds = fold_count(train.labels_N[rows_N], _groups_of(train, rows_N))
    return len(rows_N), {"train_n": len(rows_N), "folds": folds}


def _sets(train: FeatureSet, test: FeatureSet | None) -> list[FeatureSet]:
    return [train] if test is None else [train, test]


def _splits(train: FeatureSet, test: FeatureSet | None, rows_N: Tensor, seed: int) -> Iterator[Split]:
    """The test set, or one fold after another of the rows."""
    assert train.labels_N is not None
    if test is not None:
        assert test.labels_N is not None
        yield Split(*_of(train, rows_N), _groups_of(train, rows_N), test.features_ND, test.labels_N)
        return
    for predicted_M, learned_N in _folds(train, rows_N, seed):
        yield Split(*_of(train, learned_N), _groups_of(train, learned_N), *_of(train, predicted_M))


def _folds(train: FeatureSet, rows_N: Tensor, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """The rows that are predicted, and those that are learned from, fold by fold."""
    assert train.labels_N is not None
    labels_N, groups_N = train.labels_N[rows_N], _groups_of(train, rows_N)
    folds = fold_count(labels_N, groups_N)
    fold_N = stratified_folds(labels_N, folds, generator=generator_for(seed, "probe", 0), groups_N=groups_N)
    for fold in range(folds):
        yield rows_N[fold_N == fold], rows_N[fold_N != fold]


def _groups_of(features: FeatureSet, rows_N: Tensor) -> Tensor | None:
    return None if features.groups_N is None else features.groups_N[rows_N]


def _predicted_groups(train: FeatureSet, test: FeatureSet | None, rows_N: Tensor, seed: int) -> Tensor | None:
    """Which predictions belong together, in the order in which they are made."""
    if test is not None or train.groups_N is None:
        return None if test is None else test.groups_N
    return train.groups_N[torch.cat([predicted_M for predicted_M, _ in _folds(train, rows_N, seed)])]


def _of(features: FeatureSet, rows_N: Tensor) -> tuple[np.ndarray, Tensor]:
    """Features and labels of these rows; of all of them, the features stay mapped."""
    assert features.labels_N is not None
    if len(rows_N) == len(features.ids_N):
        return features.features_ND, features.labels_N
    return features.features_ND[rows_N.numpy()], features.labels_N[rows_N]


def _view(features: FeatureSet) -> dict[str, Any]:
    return {"layer": features.view.layer, "pooling": features.view.pooling}


def _accuracy(name: str, correct_M: Tensor, groups_M: Tensor | None, seed: int, protocol: dict[str, Any]) -> Metric:
    drawn = generator_for(seed, "probe", 1_000_000)
    value, low, high = accuracy_interval(correct_M, generator=drawn, groups_N=groups_M)
    protocol = {**protocol, "seed": seed}
    answers = kept(correct_M, groups_M)  # for comparisons with other runs, baselines and layers
    return Metric(metric=name, value=value, n=len(correct_M), interval=(low, high), protocol=protocol, **answers)
