"""At which layer and noise level are the features of a diffusion model best? Cross-validation on --train chooses.

The test set is used once, at the cell that was chosen. Without a test set, the accuracy of the best cell comes from the
folds that chose it and is slightly optimistic; its protocol says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from echoless.config.checks import require_number
from echoless.config.metrics import Metric, info_of, interval_text, number
from echoless.errors import ConfigError
from echoless.evaluation import classify
from echoless.evaluation.context import Evaluation
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import FeatureSet, View
from echoless.evaluation.ranks import ranks

LAYERS = 5
NOISE_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4)
CHOOSERS = ("linear", "knn")  # the first that is measured chooses
PROTOCOL: dict[str, Any] = {"features": "trained", "scan": "grid"}


@dataclass(frozen=True)
class GridCell:
    """A layer and a noise level."""

    layer: str
    noise: float


def wanted(evaluation: Evaluation) -> bool:
    return evaluation.encoder.noise is not None


def check_noise(evaluation: Evaluation) -> None:
    for level in evaluation.options.noise:
        require_number("noise", level, 0, 1)
    if evaluation.options.noise and not wanted(evaluation):
        raise ConfigError(
            f"noise is {evaluation.options.noise[0]:g}, but {evaluation.encoder.name} is not a diffusion model"
        )
    if wanted(evaluation) and "mae" in evaluation.options.probe:
        raise ConfigError("probe is 'mae'; allowed for diffusion models: quick, imagenet100")


def search(evaluation: Evaluation, measured: Sequence[str]) -> tuple[Evaluation, list[Metric]]:
    """The same evaluation, looking at the best cell alone; and the numbers of all cells."""
    layers, levels = grid_layers(evaluation), evaluation.options.noise or NOISE_LEVELS
    chooser = next((name for name in CHOOSERS if name in measured), None)
    metrics: list[Metric] = []
    if chooser is None or len(layers) * len(levels) == 1:
        best = GridCell(layers[len(layers) // 2], levels[0])
    else:
        names = [name for name in CHOOSERS if name in measured]
        metrics = [metric for level in levels for metric in _column(evaluation, layers, level, names)]
        highest = max((metric for metric in metrics if metric.metric == chooser), key=lambda metric: metric.value)
        best = GridCell(highest.protocol["layer"], highest.protocol["noise"])
        _show(evaluation, metrics, names, highest)
    chosen = at_cell(evaluation, best, len(layers) * len(levels), chooser)
    if "rank" in measured and len(layers) > 1:
        metrics += _ranks(chosen, layers)
    return chosen, metrics


def grid_layers(evaluation: Evaluation) -> list[str]:
    """All of them, those named, or by default a handful from the first to the last."""
    every, given = evaluation.encoder.layers, evaluation.options.layers
    if "all" in given:
        return list(every)
    if given != ("last",):
        return list(dict.fromkeys(every[-1] if name == "last" else name for name in given))
    count = min(LAYERS, len(every))
    return [every[round(i * (len(every) - 1) / max(count - 1, 1))] for i in range(count)]


def at_cell(evaluation: Evaluation, cell: GridCell, cells: int, chooser: str | None) -> Evaluation:
    how = "given" if cells == 1 or chooser is None else f"best of {cells} by {chooser} in folds of train"
    if evaluation.test is None and cells > 1 and chooser is not None:
        how += ", judged on the same folds"
    options = replace(evaluation.options, layers=(cell.layer,), noise=(cell.noise,))
    return replace(
        evaluation, encoder=_at(evaluation.encoder, cell.noise), options=options, noise_protocol={"cell": how}
    )


def _at(encoder: Encoder, level: float) -> Encoder:
    assert encoder.at_noise is not None
    return encoder.at_noise(level)


def _column(evaluation: Evaluation, layers: Sequence[str], level: float, names: Sequence[str]) -> list[Metric]:
    """Every layer at one level, from one pass over the training images."""
    views = [View(layer) for layer in layers]
    features = evaluation.features(_at(evaluation.encoder, level), views, evaluation.train, f"noise {level:g}, train")
    return [_measure(evaluation, features[view], name, level) for view in views for name in names]


def _measure(evaluation: Evaluation, features: FeatureSet, name: str, level: float) -> Metric:
    options, protocol = evaluation.options, {**PROTOCOL, "noise": level}
    if name == "knn":
        (metric,) = classify.knn(features, None, ks=options.k[:1], seed=options.seed, **protocol)
        return metric
    return classify.linear(features, None, probe=options.probe[0], seed=options.seed, **protocol)


def _ranks(evaluation: Evaluation, layers: Sequence[str]) -> list[Metric]:
    """How the rank goes from layer to layer, at the level that was chosen."""
    views = [View(layer) for layer in layers]
    features = evaluation.features(evaluation.encoder, views, evaluation.test_or_train, "every layer")
    protocol = {**PROTOCOL, "noise": evaluation.encoder.noise}
    return [metric for view in views for metric in ranks(features[view], features[view], **protocol)]


def _show(evaluation: Evaluation, metrics: Sequence[Metric], names: Sequence[str], highest: Metric) -> None:
    from echoless.reports.plots import heatmaps

    layer, noise = highest.protocol["layer"], f"{highest.protocol['noise']:g}"
    maps = {name: _table([metric for metric in metrics if metric.metric == name]) for name in names}
    path = heatmaps(
        evaluation.figures / "grid.png",
        {f"{info_of(name).title}, cross-validated (%)": table for name, table in maps.items()},
        rows_title="layer",
        columns_title="noise level (0 the image, 1 noise)",
        marked=(layer, noise),
    )
    folds = "five" if highest.protocol["folds"] == 5 else highest.protocol["folds"]
    cells = sum(map(len, maps[highest.metric].values()))
    evaluation.say(
        f"best by {highest.metric}, {folds}-fold cross-validation on the training set: {layer} at noise {noise} "
        f"({number(highest)}{interval_text(highest)}, the highest of {cells} on the same images)\nwritten: {path}"
    )


def _table(metrics: Sequence[Metric]) -> dict[str, dict[str, float]]:
    """layer -> noise level -> value."""
    table: dict[str, dict[str, float]] = {}
    for metric in metrics:
        table.setdefault(metric.protocol["layer"], {})[f"{metric.protocol['noise']:g}"] = metric.value
    return table
