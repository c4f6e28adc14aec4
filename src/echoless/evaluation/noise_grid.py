"""At which layer and noise level does a diffusion model know most? A grid of both; folds of the training set choose.

The test set is looked at once, at the cell that was chosen. Without one, the best cell is judged on the folds that
chose it, which flatters it a little; its protocol says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from echoless.config.checks import require_number
from echoless.config.metrics import Metric
from echoless.errors import ConfigError
from echoless.evaluation import classify
from echoless.evaluation.bench import Bench
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import FeatureSet, View
from echoless.evaluation.ranks import ranks

LAYERS = 5
NOISE_LEVELS = (0.02, 0.05, 0.1, 0.2, 0.4)
CHOOSERS = ("linear", "knn")  # the first that is measured chooses
PROTOCOL: dict[str, Any] = {"features": "trained", "scan": "grid"}


@dataclass(frozen=True)
class Cell:
    """One place to look."""

    layer: str
    noise: float


def wanted(bench: Bench) -> bool:
    return bench.encoder.noise is not None


def check_noise(bench: Bench) -> None:
    for level in bench.options.noise:
        require_number("noise", level, 0, 1)
    if bench.options.noise and not wanted(bench):
        raise ConfigError(f"noise is {bench.options.noise[0]:g}, but {bench.encoder.name} is no diffusion model")
    if wanted(bench) and "mae" in bench.options.probe:
        raise ConfigError("probe is 'mae', which shows new crops in every epoch; allowed for diffusion models: quick")


def search(bench: Bench, measured: Sequence[str]) -> tuple[Bench, list[Metric]]:
    """The same bench, looking at the best cell alone; and the numbers of all cells."""
    layers, levels = grid_layers(bench), bench.options.noise or NOISE_LEVELS
    chooser = next((name for name in CHOOSERS if name in measured), None)
    metrics: list[Metric] = []
    if chooser is None or len(layers) * len(levels) == 1:
        best = Cell(layers[len(layers) // 2], levels[0])
    else:
        names = [name for name in CHOOSERS if name in measured]
        metrics = [metric for level in levels for metric in _column(bench, layers, level, names)]
        best = _best(metrics, chooser)
        _show(bench, metrics, names, best, chooser)
    chosen = at_cell(bench, best, len(layers) * len(levels), chooser)
    if "rank" in measured and len(layers) > 1:
        metrics += _ranks(chosen, layers)
    return chosen, metrics


def grid_layers(bench: Bench) -> list[str]:
    """All of them, those named, or by default a handful from the first to the last."""
    every, given = bench.encoder.layers, bench.options.layers
    if "all" in given:
        return list(every)
    if given != ("last",):
        return list(dict.fromkeys(every[-1] if name == "last" else name for name in given))
    count = min(LAYERS, len(every))
    return [every[round(i * (len(every) - 1) / max(count - 1, 1))] for i in range(count)]


def at_cell(bench: Bench, cell: Cell, cells: int, chooser: str | None) -> Bench:
    how = "given" if cells == 1 or chooser is None else f"best of {cells} by {chooser} in folds of train"
    if bench.test is None and cells > 1 and chooser is not None:
        how += ", judged on the same folds"
    options = replace(bench.options, layers=(cell.layer,), noise=(cell.noise,))
    return replace(bench, encoder=_at(bench.encoder, cell.noise), options=options, protocol={"cell": how})


def _at(encoder: Encoder, level: float) -> Encoder:
    assert encoder.at_noise is not None
    return encoder.at_noise(level)


def _column(bench: Bench, layers: Sequence[str], level: float, names: Sequence[str]) -> list[Metric]:
    """Every layer at one level, from one pass over the training images."""
    views = [View(layer) for layer in layers]
    features = bench.features(_at(bench.encoder, level), views, bench.train, f"noise {level:g}, train")
    return [_measure(bench, features[view], name, level) for view in views for name in names]


def _measure(bench: Bench, features: FeatureSet, name: str, level: float) -> Metric:
    options, described = bench.options, {**PROTOCOL, "noise": level}
    if name == "knn":
        (metric,) = classify.knn(features, None, ks=options.k[:1], seed=options.seed, **described)
        return metric
    return classify.linear(features, None, probe=options.probe[0], seed=options.seed, **described)


def _best(metrics: Sequence[Metric], chooser: str) -> Cell:
    best = max((metric for metric in metrics if metric.metric == chooser), key=lambda metric: metric.value)
    return Cell(best.protocol["layer"], best.protocol["noise"])


def _ranks(bench: Bench, layers: Sequence[str]) -> list[Metric]:
    """How the rank goes from layer to layer, at the level that was chosen."""
    views = [View(layer) for layer in layers]
    features = bench.features(bench.encoder, views, bench.judged, "every layer")
    described = {**PROTOCOL, "noise": bench.encoder.noise}
    return [metric for view in views for metric in ranks(features[view], features[view], **described)]


def _show(bench: Bench, metrics: Sequence[Metric], names: Sequence[str], best: Cell, chooser: str) -> None:
    from echoless.reports.plots import heatmaps

    maps = {name: _table([metric for metric in metrics if metric.metric == name]) for name in names}
    titles = {"linear": "linear probe", "knn": f"kNN, k = {bench.options.k[0]}"}
    path = heatmaps(
        bench.figures / "grid.png",
        {f"{titles[name]}, accuracy in five folds (%)": table for name, table in maps.items()},
        rows_title="layer",
        columns_title="noise level (0 the image, 1 noise)",
        marked=(best.layer, f"{best.noise:g}"),
    )
    value = 100 * maps[chooser][best.layer][f"{best.noise:g}"]
    bench.say(
        f"best cell by {chooser} in five folds of the training set: {best.layer} at noise {best.noise:g} "
        f"({value:.2f} %)\nwritten: {path}"
    )


def _table(metrics: Sequence[Metric]) -> dict[str, dict[str, float]]:
    """layer -> noise level -> value."""
    table: dict[str, dict[str, float]] = {}
    for metric in metrics:
        table.setdefault(metric.protocol["layer"], {})[f"{metric.protocol['noise']:g}"] = metric.value
    return table
