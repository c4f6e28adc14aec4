"""Which layer and pooling are best? All are measured; cross-validation on the training set chooses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from echoless.config.best_layer import BEST, USUAL, best_layer
from echoless.config.checks import require_one_of
from echoless.config.metrics import Metric, interval_text, number
from echoless.evaluation import classify
from echoless.evaluation.context import Evaluation, FeatureSource, Views
from echoless.evaluation.encoder import raw_pixels
from echoless.evaluation.extract import View
from echoless.evaluation.ranks import ranks
from echoless.models import POOLINGS
from echoless.reports.gains import paired_interval
from echoless.runtime import Progress

PROTOCOL: dict[str, Any] = {"features": "trained", "scan": "layers"}
CHOSEN_BY = 10_000  # training images at most, in five folds: known to half a point, at a twenty-fifth of 50,000


def check_layers(evaluation: Evaluation) -> None:
    for name in evaluation.options.layers:
        require_one_of("layers", name, ["last", "all", *evaluation.encoder.layers])


def wanted(evaluation: Evaluation) -> bool:
    return "all" in evaluation.options.layers or len(evaluation.options.layers) > 1


def scan_features(evaluation: Evaluation) -> tuple[Views, Views | None]:
    """Every layer and pooling asked for, from one pass; what it leaves in the cache serves the last layer too."""
    views = _views(evaluation)
    train = evaluation.features(evaluation.encoder, views, evaluation.train, "every layer, train")
    test = (
        None
        if evaluation.test is None
        else evaluation.features(evaluation.encoder, views, evaluation.test, "every layer, test")
    )
    return train, test


def scan(evaluation: Evaluation, measured: Sequence[str], train: Views, test: Views | None) -> list[Metric]:
    """kNN and ranks of each, then the numbers that say which is the best."""
    metrics: list[Metric] = []
    chosen: dict[View, Metric] = {}
    with Progress("layers and poolings", len(train), "measured") as progress:
        for done, view in enumerate(train, start=1):
            if "knn" in measured:
                folded, shown = _knn(evaluation, view, train, test)
                chosen[view] = folded
                metrics.append(shown)
            if "rank" in measured and view.pooling == evaluation.pooling:
                tokens = View(view.layer, "cls") if evaluation.encoder.has_class_token else view
                metrics += ranks((test or train)[tokens], (test or train)[view], **_protocol(evaluation))
            progress.show(done)
    return metrics + (_say_best(evaluation, chosen, _raw_pixels(evaluation)) if chosen else [])


def _views(evaluation: Evaluation) -> list[View]:
    encoder, options = evaluation.encoder, evaluation.options
    named = [encoder.default_layer if name == "last" else name for name in options.layers]
    layers = encoder.layers if "all" in options.layers else tuple(dict.fromkeys(named))
    return [
        View(layer, pooling) for layer in layers for pooling in (POOLINGS if encoder.has_class_token else ("mean",))
    ]


def _knn(evaluation: Evaluation, view: View, train: Views, test: Views | None) -> tuple[Metric, Metric]:
    """On folds of the training set, which choose, and on the test set, which is shown."""
    ks, seed = evaluation.options.k[:1], evaluation.options.seed
    protocol = _protocol(evaluation)
    (folded,) = classify.knn(train[view], None, ks=ks, seed=seed, most=CHOSEN_BY, **protocol)
    if test is None:
        return folded, folded
    (shown,) = classify.knn(train[view], test[view], ks=ks, seed=seed, **protocol)
    return folded, shown


def _protocol(evaluation: Evaluation) -> dict[str, Any]:
    return PROTOCOL | evaluation.view_of(evaluation.encoder.framing)


def _say_best(evaluation: Evaluation, chosen: Mapping[View, Metric], raw: Metric | None) -> list[Metric]:
    """The numbers that are compared: of the best cell, of the usual one, and of raw pixels."""
    best = max(chosen, key=lambda view: chosen[view].value)
    usual = View(evaluation.encoder.default_layer, evaluation.encoder.default_pooling)
    if usual in chosen and chosen[usual].value >= chosen[best].value:
        best = usual
    found = [_compared(chosen[best], BEST, len(chosen))]
    found += [_compared(chosen[usual], USUAL, len(chosen))] if usual in chosen else []
    found += [] if raw is None else [_compared(raw, BEST, len(chosen))]
    k, folds, rows = (found[0].protocol[name] for name in ("k", "folds", "train_n"))
    value = f"{number(found[0])}{interval_text(found[0])}"
    how = f"by kNN (k {k}), {folds}-fold cross-validation on {rows} training images"
    evaluation.say(f"best {how}: {best.layer}, {best.pooling} pooling ({value})")
    evaluation.closing.append(best_layer(found, paired_interval))
    return found


def _compared(metric: Metric, scan: str, cells: int) -> Metric:
    return replace(metric, protocol=metric.protocol | {"scan": scan, "cells": cells})


def _raw_pixels(evaluation: Evaluation) -> Metric | None:
    """On the folds by which the layer is chosen; nothing without --baselines."""
    if not evaluation.options.baselines:
        return None
    source = FeatureSource(evaluation, "raw pixels", raw_pixels(evaluation.encoder))
    ks, seed = evaluation.options.k[:1], evaluation.options.seed
    (folded,) = classify.knn(source.train[source.view], None, ks=ks, seed=seed, most=CHOSEN_BY, **source.protocol)
    return folded
