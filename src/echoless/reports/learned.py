"""Which charts show the metrics in results.json? Values with intervals, and curves over layer, step and noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from echoless.config.headline import comparable, most_shared, strongest, told_apart, unseen
from echoless.config.metrics import METRICS, Metric, info_of, interval_text, number, on_same_images
from echoless.config.words import SPOKEN_OF
from echoless.reports.blocks import by_depth, ends_of, ticks
from echoless.reports.captions import conditions
from echoless.reports.charts import Curve, Dot, Grid, dot_chart, heat_map, line_chart
from echoless.reports.collect import RunData, is_number
from echoless.reports.figures import Figure

_BASELINES = ("raw pixels", "untrained")
_HEADINGS = {  # by kind of metric
    "features": "Measured on frozen features",
    "samples": "Measured on generated samples",
    "classifier": "Measured on the trained classifier",
    "training": "Recorded during training",
}
# A field of the protocol, the heading of the charts over it, and the name of their axis.
_AXES = (
    ("layer", "By layer", "layer"),
    ("step", "Over training", "step"),
    ("steps", "By sampler steps", "sampler steps"),
)


def learned_figures(runs: Sequence[RunData]) -> list[tuple[str, list[Figure]]]:
    """(heading, charts): values with intervals, by layer, over training, by sampler steps, by layer and noise."""
    names = sorted(dict.fromkeys(metric.metric for run in runs for metric in run.results), key=_importance)
    found = []
    for kind, heading in _HEADINGS.items():
        values = [_values(name, runs) for name in names if info_of(name).kind == kind]
        found.append((heading, [figure for figure in values if figure is not None]))
    for key, heading, axis in _AXES:
        title = heading.lower()
        found.append((heading, [figure for name in names for figure in _along(name, runs, key, title, axis)]))
    maps = [figure for run in runs for figure in heat_maps(run, alone=len(runs) == 1)]
    found.append(("By layer and noise", maps))
    return [(heading, figures) for heading, figures in found if figures]


def _importance(name: str) -> int:
    """The order of the table of metrics; unknown metrics come last."""
    return list(METRICS).index(name) if name in METRICS else len(METRICS)


def _values(name: str, runs: Sequence[RunData]) -> Figure | None:
    """The runs and their baselines on one scale and on the same images; the table lists all numbers."""
    measured = [[metric for metric in run.results if metric.metric == name and _plain(metric)] for run in runs]
    drawn = _of_the_head(runs, [[metric for metric in found if comparable(metric)] for found in measured])
    if drawn is None:
        return None
    dots: list[Dot] = []
    for place, run in enumerate(runs):
        same = [metric for metric in reversed(measured[place]) if on_same_images(metric, drawn)]
        for features in _BASELINES:
            base = next((metric for metric in same if metric.protocol.get("features") == features), None)
            if base is not None and not any(dot.name == features for dot in dots):
                dots.insert(0, _dot(features, base, None))
        if (trained := strongest([metric for metric in reversed(same) if comparable(metric)])) is not None:
            dots.append(_dot(run.name, trained, place))
    caption = conditions([drawn])
    caption += "Bars: 95 % intervals over test images" if any(dot.interval for dot in dots) else "No interval"
    caption += "; every run is one seed." if len(runs) > 1 else "."
    info = info_of(name)
    return Figure(info.title, dot_chart(info.title, dots), f"{info.about} {caption}".lstrip())


def _of_the_head(runs: Sequence[RunData], measured: Sequence[Sequence[Metric]]) -> Metric | None:
    """Where there is one, of the evaluation whose accuracy heads the page: a rank of other images contradicts it."""
    accuracies = [[m for m in run.results if comparable(m) and m.metric in SPOKEN_OF] for run in runs]
    head = most_shared(accuracies)
    same = [[metric for metric in found if head is not None and on_same_images(metric, head)] for found in measured]
    return most_shared(same) or most_shared(measured)


def _plain(metric: Metric) -> bool:
    return not {"scan", "step"} & set(metric.protocol)


def _dot(name: str, metric: Metric, style: int | None) -> Dot:
    if not metric.info.is_share:
        return Dot(name, metric.value, metric.interval, style, number(metric) + interval_text(metric))
    ends = None if metric.interval is None else (100 * metric.interval[0], 100 * metric.interval[1])
    return Dot(name, 100 * metric.value, ends, style, number(metric) + interval_text(metric))


def _along(name: str, runs: Sequence[RunData], key: str, how: str, axis: str) -> list[Figure]:
    """Curves over one field of the protocol; one chart for the runs, or for the poolings of a single run.

    Of several runs only on images that most of them share: curves of different images are not comparable. On images
    that training has seen only where there are no others.
    """
    alone = len(runs) == 1
    measured = unseen([[m for m in run.results if m.metric == name and _belongs(m, key)] for run in runs])
    if not alone and (common := most_shared(measured)) is not None:
        measured = [[metric for metric in found if on_same_images(metric, common)] for found in measured]
    drawn = [_families(found, key)[: None if alone else 1] for found in measured]
    values = [metric for families in drawn for family in families for metric in family.metrics.values()]
    places = _places(values, key)
    if len(places) < 2:
        return []
    factor = 100 if info_of(name).is_share else 1
    curves = [
        _curve(family, key, places, factor, (alone and family.name) or run.name, index if alone else place)
        for place, (run, families) in enumerate(zip(runs, drawn))
        for index, family in enumerate(families)
    ]
    title = f"{info_of(name).title} {how}" + (" (%)" if info_of(name).is_share else "")
    labels = ticks(places) if key == "layer" else None
    caption = f"Layer {ends_of(places)} " if key == "layer" else ""
    caption += conditions(values, over=key)
    if any(curve.band for curve in curves):
        caption += "Shaded: 95 % intervals over test images."
    legend = tuple((f"s{c.style % 8} d{c.style // 8}", "", c.name) for c in curves) if len(curves) > 1 and alone else ()
    return [Figure(title, line_chart(title, curves, x=axis, labels=labels), caption.rstrip(), legend)]


def _curve(family: _Family, key: str, places: Sequence[Any], factor: float, title: str, style: int) -> Curve:
    ordered = sorted(family.metrics.values(), key=lambda metric: places.index(metric.protocol[key]))
    xs = [places.index(m.protocol[key]) if key == "layer" else float(m.protocol[key]) for m in ordered]
    ys = [factor * metric.value for metric in ordered]
    return Curve(title, xs, ys, style=style, dots=True, band=_band(ordered, factor))


def _places(metrics: Sequence[Metric], key: str) -> list[Any]:
    """The values of the field, in order: numbers by size, layers as they were recorded."""
    unique = list(dict.fromkeys(metric.protocol[key] for metric in metrics))
    return sorted(unique) if all(is_number(value) for value in unique) else sorted(unique, key=by_depth)


def _belongs(metric: Metric, key: str) -> bool:
    protocol = metric.protocol
    if key not in protocol or protocol.get("features", "trained") != "trained":
        return False
    if key == "layer":
        return protocol.get("scan") == "layers" and not {"step", "noise"} & set(protocol)
    return is_number(protocol[key])


@dataclass(frozen=True)
class _Family:
    """Numbers whose protocols agree in everything but one field; the latest number at each of its values."""

    protocol: dict[str, Any]
    metrics: dict[str, Metric]
    name: str = ""  # what its protocol has that those of the other families have not


def _families(metrics: Sequence[Metric], key: str) -> list[_Family]:
    """Those with two values or more, mean pooling first."""
    found: dict[str, _Family] = {}
    for metric in metrics:
        rest = {k: v for k, v in metric.protocol.items() if k not in (key, "scan", "seed", "features")}
        family = found.setdefault(repr(rest), _Family(rest, {}))
        family.metrics[repr(metric.protocol[key])] = metric
    families = [family for family in found.values() if len(family.metrics) > 1]
    families.sort(key=lambda family: family.protocol.get("pooling", "mean") != "mean")
    if len(families) < 2:
        return families
    first = families[0].protocol
    shared = [k for k in first if all(k in f.protocol and f.protocol[k] == first[k] for f in families)]
    own = [{k: v for k, v in f.protocol.items() if k not in shared} for f in families]
    names = told_apart([next(iter(f.metrics.values())) for f in families], own)
    return [replace(f, name=name) for f, name in zip(families, names)]


def _band(metrics: Sequence[Metric], factor: float) -> list[tuple[float, float]] | None:
    ends = [(factor * m.interval[0], factor * m.interval[1]) for m in metrics if m.interval is not None]
    return ends if len(ends) == len(metrics) else None


def _cells(name: str, run: RunData) -> dict[tuple[str, float], Metric]:
    """Numbers by layer and noise level. Where there is a scan, only its values: the chosen cell is measured again."""
    found = [
        m for m in run.results if m.metric == name and "layer" in m.protocol and is_number(m.protocol.get("noise"))
    ]
    scanned = [metric for metric in found if "scan" in metric.protocol]
    return {(str(m.protocol["layer"]), m.protocol["noise"]): m for m in scanned or found}


def heat_maps(run: RunData, alone: bool) -> list[Figure]:
    """Every metric that was measured at several layers and noise levels."""
    figures = []
    for name in dict.fromkeys(metric.metric for metric in run.results):
        cells = _cells(name, run)
        if len(cells) < 2:
            continue
        values = {place: metric.value for place, metric in cells.items()}
        rows = sorted({layer for layer, _ in cells}, key=by_depth)
        columns = sorted({noise for _, noise in cells})
        grid = Grid(
            rows, [f"{noise:g}" for noise in columns], [[values.get((row, col)) for col in columns] for row in rows]
        )
        info = info_of(name)
        title = f"{info.title} by layer and noise" + ("" if alone else f": {run.name}")
        drawing = heat_map(title, grid, x="noise", y="layer", percent=info.is_share)
        sign = info.better or 1
        (layer, noise), value = max(values.items(), key=lambda cell: sign * cell[1])
        extreme = "Highest" if sign > 0 else "Lowest"
        caption = f"{extreme} at {layer}, noise {noise:g}: {100 * value if info.is_share else value:.3g}."
        parts = [caption, "In per cent." if info.is_share else "", conditions(list(cells.values()), over="noise")]
        figures.append(Figure(title, drawing, " ".join(filter(None, parts)).rstrip()))
    return figures
