"""Which layer and pooling are best? All are measured; cross-validation on the training set chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from echoless.config.checks import require_one_of
from echoless.config.metrics import Metric, interval_text, number
from echoless.evaluation import classify
from echoless.evaluation.context import Evaluation, Views
from echoless.evaluation.extract import View
from echoless.evaluation.ranks import ranks
from echoless.models import POOLINGS
from echoless.reports.compare import paired_interval
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
    """kNN and ranks of each."""
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
    if chosen:
        _say_best(evaluation, chosen)
    return metrics


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


def _say_best(evaluation: Evaluation, chosen: dict[View, Metric]) -> None:
    best = max(chosen, key=lambda view: chosen[view].value)
    found, usual = chosen[best], View(evaluation.encoder.default_layer, evaluation.encoder.default_pooling)
    if usual in chosen and chosen[usual].value >= found.value:
        best = usual
    k, folds, rows = (found.protocol[name] for name in ("k", "folds", "train_n"))
    how = f"by kNN (k {k}), {folds}-fold cross-validation on {rows} training images"
    where, value = f"{best.layer}, {best.pooling} pooling", f"{number(found)}{interval_text(found)}"
    evaluation.say(f"best {how}: {where} ({value})")
    highest = f"{value}, the highest of {len(chosen)} on the same images."
    if best == usual:
        evaluation.closing.append(f"Best layer {how}: the usual one, {where}: {highest}")
        return
    embed = f"embed takes it by --layer {best.layer} --pooling {best.pooling}."
    beside = _beside_usual(found, chosen.get(usual), usual, len(chosen))
    evaluation.closing.append(f"Best layer {how}: {where}: {highest}{beside} {embed}")


def _beside_usual(best: Metric, known: Metric | None, usual: View, cells: int) -> str:
    """Whether it clearly differs from the usual layer and pooling, paired over the images; nothing where unmeasured.

    The highest of many cells is above one of them by chance, too: the interval allows for that.
    """
    interval = None if known is None else paired_interval(best, known, among=cells - 1)
    if known is None or interval is None:
        return ""
    low, high = interval
    differs = "is above" if low > 0 else "does not clearly differ from"
    return (
        f" It {differs} the usual {usual.layer}, {usual.pooling} pooling ({number(known)}): difference "
        f"{100 * (best.value - known.value):+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}], corrected for the "
        "choice."
    )
