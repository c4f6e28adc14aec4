"""How good are the features of each block? Accuracy over depth, one curve per setting: the mean over its seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from echoless.config.headline import most_shared, unseen
from echoless.config.metrics import Metric, info_of, on_same_images
from echoless.reports.captions import conditions
from echoless.reports.charts import Curve, line_chart
from echoless.reports.compare import Estimate, Group, estimate_of
from echoless.reports.figures import Figure


@dataclass(frozen=True)
class Profile:
    """One setting: an estimate for every layer, shallow to deep."""

    group: Group
    layers: list[str]
    estimates: list[Estimate]
    measured: list[Metric]  # what they are the means of


def profiles(groups: Sequence[Group], name: str) -> list[Profile]:
    """Of the metric `name`, mean over tokens, on images that most runs share; settings without it are left out.

    On images that training has seen only where there are no others. Two evaluations of one run are no two seeds: each
    run counts once at every layer.
    """
    runs = [run for group in groups for run in group.runs]
    every = unseen([[m for m in run.results if m.metric == name and _scans(m)] for run in runs])
    scans = {id(run): metrics for run, metrics in zip(runs, every)}
    common = most_shared(list(scans.values()))
    found = []
    for group in groups:
        scanned = [
            {str(m.protocol["layer"]): m for m in scans[id(run)] if common is not None and on_same_images(m, common)}
            for run in group.runs
        ]
        layers = sorted(dict.fromkeys(layer for each in scanned for layer in each), key=by_depth)
        at = [estimate_of([each[layer] for each in scanned if layer in each]) for layer in layers]
        if len(layers) > 1:
            estimates = [estimate for estimate in at if estimate is not None]
            found.append(Profile(group, layers, estimates, [metric for each in scanned for metric in each.values()]))
    return found


def _scans(metric: Metric) -> bool:
    """Whether it is a value of the trained encoder in a scan over its layers."""
    protocol = metric.protocol
    trained = protocol.get("features", "trained") == "trained" and protocol.get("pooling", "mean") == "mean"
    return (
        trained and protocol.get("scan") == "layers" and "layer" in protocol and not {"step", "noise"} & set(protocol)
    )


def by_depth(layer: Any) -> tuple[int, str]:
    """Sorts layers: `embed` comes before every block, `norm` and `output` after them."""
    name = str(layer)
    return (0 if name.startswith(("embed", "patch")) else 2 if name.startswith(("norm", "output")) else 1), name


def ticks(layers: Sequence[Any]) -> list[str]:
    """What stands below an axis over layers: `0` for block00/+mlp, as its name counts; the names of others."""
    short = [_without_block(str(layer)) for layer in layers]
    first = [name.partition("/")[0] for name in short]
    return first if len(set(first)) == len(first) else short


def _without_block(name: str) -> str:
    number, slash, rest = name.removeprefix("block").partition("/")
    return f"{int(number)}{slash}{rest}" if name.startswith("block") and number.isdecimal() else name


def ends_of(layers: Sequence[Any]) -> str:
    """`0 is block00/+mlp, 5 is block05/+mlp.`"""
    names = ticks(layers)
    return f"{names[0]} is {layers[0]}, {names[-1]} is {layers[-1]}."


def accuracy_by_block(groups: Sequence[Group], name: str = "knn") -> Figure | None:
    """All settings on one chart; None if fewer than two were measured at every layer."""
    found = profiles(groups, name)
    if len(found) < 2:
        return None
    layers = max((profile.layers for profile in found), key=len)
    curves = [_curve(profile, layers) for profile in found]
    title = f"{info_of(name).title} by block (%)"
    seeds = sorted({profile.group.seeds for profile in found})
    over = "over test images; one seed each" if seeds == [1] else "of the mean over seeds, where there are several"
    on = conditions([metric for profile in found for metric in profile.measured])
    labels = ticks(layers)
    caption = f"Mean over tokens; {ends_of(layers)} {on}Shaded: 95 % intervals {over}."
    legend = tuple((f"s{curve.style % 8} d{curve.style // 8}", "", curve.name) for curve in curves)
    return Figure(title, line_chart(title, curves, x="layer", labels=labels), caption, legend)


def _curve(profile: Profile, layers: Sequence[str]) -> Curve:
    xs = [float(layers.index(layer)) for layer in profile.layers if layer in layers]
    shown = [estimate for layer, estimate in zip(profile.layers, profile.estimates) if layer in layers]
    ends = [(100 * e.interval[0], 100 * e.interval[1]) for e in shown if e.interval is not None]
    ys = [100 * estimate.value for estimate in shown]
    band = ends if len(ends) == len(shown) else None
    return Curve(profile.group.name, xs, ys, style=profile.group.first, dots=True, band=band)
