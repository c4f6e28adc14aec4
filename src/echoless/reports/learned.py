"""What was learned, as charts? The numbers of results.json by what varies in their protocols: layer, step, noise."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from echoless.config.metrics import Metric, describe, interval_text, number
from echoless.reports.charts import Curve, Dot, Grid, dot_chart, heat_map, line_chart
from echoless.reports.collect import RunData, is_number
from echoless.reports.compare import comparable, is_share_name
from echoless.reports.figures import Figure

TITLES = {
    "knn": "kNN accuracy",
    "linear": "Linear probe accuracy",
    "miou": "Segmentation mIoU",
    "miou_object": "Segmentation mIoU, object and ground",
    "frechet": "Frechet distance",
    "rank_paper": "Effective rank (the paper's)",
    "rank_centered": "Effective rank (column-centred)",
    "rankme": "Effective rank (RankMe)",
}
_BASELINES = ("raw pixels", "untrained")


def title_of(name: str) -> str:
    return TITLES.get(name, name.replace("_", " ").capitalize())


def learned_figures(runs: Sequence[RunData]) -> list[tuple[str, list[Figure]]]:
    """(heading, charts): values with intervals, by layer, over training, by layer and noise, by sampler steps."""
    names = sorted(dict.fromkeys(metric.metric for run in runs for metric in run.results), key=_importance)
    values = [figure for name in names if (figure := _values(name, runs)) is not None]
    found = [("Measured on frozen features", values)]
    for heading, key in (("By layer", "layer"), ("Over training", "step"), ("By sampler steps", "steps")):
        found.append((heading, [figure for name in names for figure in _along(name, runs, key, heading.lower())]))
    maps = [figure for run in runs for figure in heat_maps(run, alone=len(runs) == 1)]
    found.append(("By layer and noise", maps))
    return [(heading, figures) for heading, figures in found if figures]


def _importance(name: str) -> int:
    """In the order of TITLES; what is not there comes between the accuracies and the ranks."""
    order = [*list(TITLES)[:4], "", *list(TITLES)[4:]]
    return order.index(name) if name in order else order.index("")


def _values(name: str, runs: Sequence[RunData]) -> Figure | None:
    """The runs and their baselines on one scale. Of several protocols the first is drawn; the table has them all."""
    dots: list[Dot] = []
    drawn: Metric | None = None
    for place, run in enumerate(runs):
        chosen = [metric for metric in run.results if metric.metric == name and _plain(metric)]
        trained = next((metric for metric in chosen if comparable(metric)), None)
        drawn = drawn or trained
        for features in _BASELINES:
            base = next((metric for metric in chosen if metric.protocol.get("features") == features), None)
            if base is not None and not any(dot.name == features for dot in dots):
                dots.insert(0, _dot(features, base, None))
        if trained is not None:
            dots.append(_dot(run.name, trained, place))
    if drawn is None:
        return None
    protocol = {key: value for key, value in drawn.protocol.items() if key not in ("features", "layer", "layers")}
    caption = f"n = {drawn.n}. {describe(protocol)}. " if protocol else f"n = {drawn.n}. "
    caption += "Bars: 95 % intervals over test images." if any(dot.interval for dot in dots) else "No interval."
    return Figure(title_of(name), dot_chart(title_of(name), dots), caption)


def _plain(metric: Metric) -> bool:
    return not {"scan", "step"} & set(metric.protocol)


def _dot(name: str, metric: Metric, style: int | None) -> Dot:
    if not is_share_name(metric.metric):
        return Dot(name, metric.value, metric.interval, style, number(metric) + interval_text(metric))
    ends = None if metric.interval is None else (100 * metric.interval[0], 100 * metric.interval[1])
    return Dot(name, 100 * metric.value, ends, style, number(metric) + interval_text(metric))


def _along(name: str, runs: Sequence[RunData], key: str, how: str) -> list[Figure]:
    """Curves over one field of the protocol; one chart for the runs, or for the poolings of a single run."""
    curves: list[Curve] = []
    places = _places(name, runs, key)
    if len(places) < 2:
        return []
    factor = 100 if is_share_name(name) else 1
    for place, run in enumerate(runs):
        families = _families(name, run, key)
        if len(runs) > 1:  # one family each, so that the chart compares runs
            families = dict(sorted(families.items(), key=lambda item: "pooling mean" not in item[0])[:1])
        for number_, (described, metrics) in enumerate(families.items()):
            unique = _unique(metrics, key)
            rows = sorted(((places.index(m.protocol[key]), m) for m in unique), key=lambda row: row[0])
            if len(rows) < 2:
                continue
            xs = [where if key == "layer" else float(metric.protocol[key]) for where, metric in rows]
            ys = [factor * metric.value for _, metric in rows]
            named = run.name if len(runs) > 1 else described or run.name
            style = place if len(runs) > 1 else number_
            curves.append(Curve(named, xs, ys, style=style, dots=True, band=_band([m for _, m in rows], factor)))
    if not curves:
        return []
    title = f"{title_of(name)} {how}" + (" (%)" if factor == 100 else "")
    labels = [str(index + 1) for index in range(len(places))] if key == "layer" else None
    x = {"layer": "layer", "step": "step", "steps": "sampler steps"}[key]
    caption = f"Layer 1 is {places[0]}, layer {len(places)} is {places[-1]}. " if key == "layer" else ""
    if any(curve.band for curve in curves):
        caption += "Shaded: 95 % intervals over test images."
    key_ = tuple((f"s{c.style % 8} d{c.style // 8}", "", c.name) for c in curves) if len(runs) == 1 else ()
    return [Figure(title, line_chart(title, curves, x=x, labels=labels), caption, key_ if len(key_) > 1 else ())]


def _places(name: str, runs: Sequence[RunData], key: str) -> list[Any]:
    """The values of the field, in order: numbers by size, layers as they were recorded."""
    found = [
        metric.protocol[key]
        for run in runs
        for metric in run.results
        if metric.metric == name and _belongs(metric, key)
    ]
    unique = list(dict.fromkeys(found))
    return sorted(unique) if all(is_number(value) for value in unique) else sorted(unique, key=_depth)


def _depth(layer: Any) -> tuple[int, str]:
    """`embed` comes before every block, `output` after them."""
    name = str(layer)
    return (0 if name.startswith(("embed", "patch")) else 2 if name.startswith(("norm", "output")) else 1), name


def _belongs(metric: Metric, key: str) -> bool:
    protocol = metric.protocol
    if key not in protocol or protocol.get("features", "trained") != "trained":
        return False
    if key == "layer":
        return "scan" in protocol and not {"step", "noise"} & set(protocol)
    return is_number(protocol[key])


def _families(name: str, run: RunData, key: str) -> dict[str, list[Metric]]:
    """Numbers whose protocols agree in everything but the field."""
    families: dict[str, list[Metric]] = {}
    for metric in run.results:
        if metric.metric == name and _belongs(metric, key):
            rest = {k: v for k, v in metric.protocol.items() if k not in (key, "scan", "seed", "features")}
            families.setdefault(describe(rest), []).append(metric)
    return _shortened(families)


def _shortened(families: dict[str, list[Metric]]) -> dict[str, list[Metric]]:
    """Names without what all of them share."""
    split = {name: name.split(", ") for name in families}
    common = set.intersection(*(set(words) for words in split.values())) if len(families) > 1 else set()
    return {", ".join(w for w in split[name] if w not in common): metrics for name, metrics in families.items()}


def _unique(metrics: Iterable[Metric], key: str) -> list[Metric]:
    """The latest number at each place."""
    return list({repr(metric.protocol[key]): metric for metric in metrics}.values())


def _band(metrics: Sequence[Metric], factor: float) -> list[tuple[float, float]] | None:
    ends = [(factor * m.interval[0], factor * m.interval[1]) for m in metrics if m.interval is not None]
    return ends if len(ends) == len(metrics) else None


def _cells(name: str, run: RunData) -> dict[tuple[str, float], float]:
    """By layer and noise. A scan counts alone: the cell that it chose is measured again, in another way."""
    found = [
        m for m in run.results if m.metric == name and "layer" in m.protocol and is_number(m.protocol.get("noise"))
    ]
    scanned = [metric for metric in found if "scan" in metric.protocol]
    return {(str(m.protocol["layer"]), m.protocol["noise"]): m.value for m in scanned or found}


def heat_maps(run: RunData, alone: bool) -> list[Figure]:
    """Every metric that was measured at several layers and noise levels."""
    figures = []
    for name in dict.fromkeys(metric.metric for metric in run.results):
        cells = _cells(name, run)
        if len(cells) < 2:
            continue
        rows = sorted({layer for layer, _ in cells}, key=_depth)
        columns = sorted({noise for _, noise in cells})
        grid = Grid(
            rows, [f"{noise:g}" for noise in columns], [[cells.get((row, col)) for col in columns] for row in rows]
        )
        title = f"{title_of(name)} by layer and noise" + ("" if alone else f": {run.name}")
        drawing = heat_map(title, grid, x="noise", y="layer", percent=is_share_name(name))
        (layer, noise), best = max(cells.items(), key=lambda cell: cell[1])
        caption = f"Greatest at {layer}, noise {noise:g}: {100 * best if is_share_name(name) else best:.3g}."
        figures.append(Figure(title, drawing, caption + (" In per cent." if is_share_name(name) else "")))
    return figures
