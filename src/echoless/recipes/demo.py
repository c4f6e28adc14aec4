"""What does the demo do? The main job on a fresh machine: pretrain a plain and a faded encoder, and compare them.

Nothing in it is fixed in advance: it prints what it measures, and says which differences the intervals support.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from echoless.errors import RunError
from echoless.recipes.evaluate import evaluate
from echoless.recipes.pretrain import pretrain
from echoless.reports import Metric
from echoless.reports.page import report
from echoless.runs import write_json
from echoless.training import duration

TRAIN, TEST = "shapes:16000", "shapes:2000@test"
RUNS = {"plain": 1.0, "faded": 0.6}
Say = Callable[[str], None]


def demo(
    out: Path,
    *,
    steps: int | None = None,
    seed: int = 0,
    train: str = TRAIN,
    test: str = TEST,
    say: Say = print,
) -> dict[str, list[Metric]]:
    """Two runs that differ in alpha_min alone, kNN, probe, rank and mIoU of both, one table, results.json, one page."""
    started = time.monotonic()
    out.mkdir(parents=True, exist_ok=True)
    results: dict[str, list[Metric]] = {}
    for name, alpha_min in RUNS.items():
        say(f"\n== {name}: alpha_min {alpha_min}")
        complete = pretrain(
            train,
            out / name,
            recipe="demo",
            alpha_min=alpha_min,
            seed=seed,
            max_steps=steps,
            resume=(out / name).exists(),
        )
        if not complete:
            raise RunError(f"the demo was stopped; the same command continues it (in {out})")
        results[name] = evaluate(
            out / name,
            train=train,
            test=test,
            metrics=("knn", "linear", "rank", "spectral", "tsne", "reconstruct"),
            baselines=name == "plain",
            seed=seed,
            say=say,
        )
    records = [{"run": name, **metric.to_json()} for name, metrics in results.items() for metric in metrics]
    write_json(out / "results.json", records)
    say("\n" + comparison(results["plain"], results["faded"]))
    page = report([out / name for name in RUNS], out / "report.html")
    say(f"\nlook at {page}; results: {out / 'results.json'}; {duration(time.monotonic() - started)} in all")
    return results


def comparison(plain: Sequence[Metric], faded: Sequence[Metric]) -> str:
    """The table, and what it says in plain words."""
    rows: list[tuple[str, ...]] = [("", "raw pixels", "untrained", "plain, alpha 1", "faded")]
    verdicts = []
    for name, title in (("knn", "kNN (k = 20)"), ("linear", "linear probe"), ("miou", "mIoU"), ("rank_paper", "rank")):
        columns = [_find(plain, name, "raw pixels"), _find(plain, name, "untrained")]
        columns += [_find(plain, name, "trained"), _find(faded, name, "trained")]
        rows.append((title, *(_cell(metric) for metric in columns)))
        if name != "rank_paper" and columns[2] and columns[3]:
            verdicts.append(f"{title}: {_verdict(columns[2], columns[3])}")
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", *verdicts, _caveat()])


def _find(metrics: Sequence[Metric], name: str, features: str) -> Metric | None:
    found = [m for m in metrics if m.metric == name and m.protocol.get("features") == features]
    return found[0] if found else None


def _cell(metric: Metric | None) -> str:
    if metric is None:
        return "-"
    if metric.metric == "rank_paper":
        return f"{metric.value:.2f}"
    value = f"{100 * metric.value:.1f} %"
    return (
        value
        if metric.interval is None
        else f"{value} [{100 * metric.interval[0]:.1f}, {100 * metric.interval[1]:.1f}]"
    )


def _verdict(plain: Metric, faded: Metric) -> str:
    gain = 100 * (faded.value - plain.value)
    if plain.interval is None or faded.interval is None:
        return f"faded is {gain:+.1f} points from plain; no interval, so this is an observation only"
    apart = faded.interval[0] > plain.interval[1] or faded.interval[1] < plain.interval[0]
    if not apart:
        return f"faded is {gain:+.1f} points from plain, within the intervals: no difference was seen"
    return f"faded is {'better' if gain > 0 else 'worse'} by {abs(gain):.1f} points, beyond the intervals"


def _caveat() -> str:
    return (
        "One seed and a few minutes of training on drawn shapes; the paper trains 800 epochs on photographs. Intervals "
        "are over test images, not over seeds."
    )
