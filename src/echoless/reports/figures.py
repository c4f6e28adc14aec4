"""Which charts show how training went? Those for which the runs recorded numbers; several runs share one chart."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from markupsafe import Markup

from echoless.config.metrics import info_of
from echoless.reports.charts import Curve, line_chart
from echoless.reports.collect import RunData
from echoless.shortcuts import contributions

_KNOWN = {"step", "loss", "lr", "gradient_norm", "rankme", "rank_paper", "images_per_second", "waiting", "memory_mb"}


@dataclass(frozen=True)
class Figure:
    """A chart with its title and caption. `key`: the names of the curves, by style."""

    title: str
    drawing: Markup
    caption: str = ""
    key: tuple[tuple[str, str, str], ...] = ()  # (class, style, name)
    quantity: str = ""  # whose verdicts belong below it
    of: int | None = None  # only this run's


def alpha_figures(runs: Sequence[RunData]) -> list[Figure]:
    """Alpha, its running product and the weights of equation 4, against depth."""
    faded = [(place, run) for place, run in enumerate(runs) if run.alphas]
    if not faded:
        return []
    products = {place: list(accumulate(run.alphas, lambda a, b: a * b)) for place, run in faded}
    weights = {place: contributions(run.alphas) for place, run in faded}
    alphas = {place: run.alphas for place, run in faded}
    shortcut = "shortcut (attention, MLP, attention, ...)"
    return [
        _depth("Alpha of every shortcut", alphas, runs, shortcut, 1, "Coefficient of the identity at each sub-layer."),
        _depth(
            "Running product of the alphas",
            products,
            runs,
            shortcut,
            1,
            "Weight of the input after each shortcut; the last value is the effective alpha.",
        ),
        _depth(
            "Contribution of every layer to the output",
            weights,
            runs,
            "layer (0 is the input)",
            0,
            "Weight of the input and of each branch in the output (equation 4).",
        ),
    ]


def _depth(
    title: str, values: Mapping[int, Sequence[float]], runs: Sequence[RunData], x: str, first: int, caption: str
) -> Figure:
    curves = [
        Curve(runs[place].name, range(first, first + len(each)), each, style=place, dots=len(each) <= 48)
        for place, each in values.items()
    ]
    smallest = min(min(each) for each in values.values())
    log = 0 < smallest < 0.02
    drawing = line_chart(title, curves, x=x, log=log, include=(1.0,) if log else (0.0, 1.0))
    return Figure(title, drawing, caption)


def training_figures(runs: Sequence[RunData]) -> list[Figure]:
    """Everything that metrics.jsonl has, over steps."""
    figures = [
        _over_steps(
            "Loss",
            "loss",
            runs,
            smoothed=True,
            quantity="loss",
            caption="Faint: recorded values. Bold: medians over 60 equal intervals.",
        ),
        _over_steps("Learning rate", "lr", runs, quantity="learning rate"),
        _over_steps(
            "Gradient norm",
            "gradient_norm",
            runs,
            log=True,
            smoothed=True,
            quantity="gradient norm",
            caption="Before clipping. Bold: medians over 60 equal intervals.",
        ),
        *(_norms(runs, place) for place in range(len(runs))),
        _over_steps(
            info_of("rankme").title,
            "rankme",
            runs,
            quantity="effective rank",
            caption="Pooled features of a fixed probe batch.",
        ),
        _over_steps(info_of("rank_paper").title, "rank_paper", runs, caption="Class tokens of a fixed probe batch."),
        _over_steps("Images per second", "images_per_second", runs, include=(0.0,), quantity="images/s"),
    ]
    others = {key for run in runs for line in run.lines for key, value in line.items() if not isinstance(value, dict)}
    figures += [_over_steps(key.replace("_", " ").capitalize(), key, runs) for key in sorted(others - _KNOWN)]
    if len(runs) > 1:
        figures.insert(3, _last_norm(runs))
    return [figure for figure in figures if figure is not None]


def _over_steps(
    title: str,
    key: str,
    runs: Sequence[RunData],
    *,
    log: bool = False,
    smoothed: bool = False,
    include: tuple[float, ...] = (),
    caption: str = "",
    quantity: str = "",
) -> Figure | None:
    curves = []
    for place, run in enumerate(runs):
        series = run.series(key)
        if key == "images_per_second":  # the first line has no time behind it
            kept = [(step, value) for step, value in zip(series.steps, series.values) if value > 0]
            steps, values = [step for step, _ in kept], [value for _, value in kept]
        else:
            steps, values = series.steps, series.values
        if steps:
            curves.append(Curve(run.name, steps, values, style=place, smoothed=smoothed, dots=len(steps) < 12))
    if not curves:
        return None
    return Figure(title, line_chart(title, curves, x="step", log=log, include=include), caption, quantity=quantity)


def _norms(runs: Sequence[RunData], of: int) -> Figure | None:
    """The mean token norm of every block; light to dark is shallow to deep."""
    run = runs[of]
    blocks = run.blocks("feature_norm")
    series = [(block, run.series(f"feature_norm/{block}")) for block in blocks]
    series = [(block, each) for block, each in series if len(each)]
    if not series:
        return None
    last = max(len(series) - 1, 1)
    curves = [
        Curve(block, each.steps, each.values, ramp=place / last, dots=len(each) < 12)
        for place, (block, each) in enumerate(series)
    ]
    title = "Feature norm of every block" + ("" if len(runs) == 1 else f": {run.name}")
    ends = [(0, series[0][0]), (last, series[-1][0])] if len(series) > 1 else [(0, series[0][0])]
    key = tuple(("ramp", f"--t:{place / last:.3f}", name) for place, name in ends)
    caption = "Mean norm of the tokens of a fixed probe batch, from the first block to the last."
    drawing = line_chart(title, curves, x="step", log=True, include=_range_of_norms(runs))
    return Figure(title, drawing, caption, key, quantity="feature norms", of=of)


def _range_of_norms(runs: Sequence[RunData]) -> tuple[float, ...]:
    """The least and the greatest norm of all runs, so that their panels have one scale."""
    series = [run.series(f"feature_norm/{block}") for run in runs for block in run.blocks("feature_norm")]
    values = [value for each in series for value in each.values]
    return (min(values), max(values)) if values else ()


def _last_norm(runs: Sequence[RunData]) -> Figure | None:
    curves = []
    for place, run in enumerate(runs):
        blocks = run.blocks("feature_norm")
        series = run.series(f"feature_norm/{blocks[-1]}") if blocks else None
        if series:
            curves.append(Curve(run.name, series.steps, series.values, style=place, dots=len(series) < 12))
    if not curves:
        return None
    title = "Feature norm of the last block"
    return Figure(title, line_chart(title, curves, x="step", log=True))


def effective_alpha_note(run: RunData) -> str:
    """The effective alpha, and the range in which the paper found the best linear probes."""
    if not run.alphas:
        return ""
    effective = math.prod(run.alphas)
    return f"effective alpha {effective:.2g} (best linear probes in the paper: 0.001 to 0.01)"
