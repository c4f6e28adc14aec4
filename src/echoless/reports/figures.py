"""Which charts does a page have? Those that the runs' numbers allow; several runs share one chart."""

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
    """A drawing with its title above and what one should know about it below. `key`: names of curves, by look."""

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
        _depth("Alpha of every shortcut", alphas, runs, shortcut, 1, "The weight of the identity at each sub-layer."),
        _depth(
            "Running product of the alphas",
            products,
            runs,
            shortcut,
            1,
            "How much of the input is left after each shortcut, branches aside; the last is the effective alpha.",
        ),
        _depth(
            "Contribution of every layer to the output",
            weights,
            runs,
            "layer (0 is the input)",
            0,
            "Equation 4: the weight with which the input and each branch reach the output.",
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
            caption="Faint: as recorded. Bold: medians of 60 equal spans.",
        ),
        _over_steps("Learning rate", "lr", runs, quantity="learning rate"),
        _over_steps(
            "Gradient norm",
            "gradient_norm",
            runs,
            log=True,
            smoothed=True,
            quantity="gradient norm",
            caption="Before clipping; bold as above.",
        ),
        *(_norms(runs, place) for place in range(len(runs))),
        _over_steps(
            info_of("rankme").title,
            "rankme",
            runs,
            quantity="effective rank",
            caption="Of the pooled features of a fixed probe batch.",
        ),
        _over_steps(
            info_of("rank_paper").title, "rank_paper", runs, caption="Of the class tokens of a fixed probe batch."
        ),
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
    return Figure(title, line_chart(title, curves, x="step", log=True), caption, key, quantity="feature norms", of=of)


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
    """What the effective alpha is, beside the range in which the paper found the best probes."""
    if not run.alphas:
        return ""
    effective = math.prod(run.alphas)
    return f"effective alpha {effective:.2g} (the paper's best probes: 0.001 to 0.01)"
