"""How does `demo` compare a plain and a faded encoder? Pretrain both on built-in images, measure both.

Nothing in it is fixed in advance: it prints what it measures, and says which differences the intervals support.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from echoless.config.facts import DataFacts
from echoless.config.metrics import METRICS, YIELDS, Metric, Metrics
from echoless.config.options import DemoOptions, EvaluateOptions
from echoless.data import Batch
from echoless.errors import RunError
from echoless.randomness import generator_for
from echoless.recipes.masked import demo as demo_config
from echoless.reports.page import report
from echoless.runs import RunFolder
from echoless.runtime import Team, choose_device, duration
from echoless.storage import write_json
from echoless.storage.atomic import explained
from echoless.training import build_task, make_trainee, take_step
from echoless.verbs.evaluate import evaluate
from echoless.verbs.pretrain import pretrain

TRAIN, LABELLED, TEST = "shapes:16000", "shapes:8000", "shapes:2000@test"
SEGMENTED = 100  # images
RUNS = {"plain": 1.0, "faded": 0.6}
TIMED_STEPS = 10  # SOAP renews its bases in every tenth
MEASURING = 500  # steps of training that take as long as everything else
MEASURED = ("knn", "linear", "rank", "spectral", "tsne", "reconstruct")
CAVEAT = (
    "One seed and a few minutes of training on synthetic shapes; the paper trains 800 epochs on photographs. Intervals "
    "are over test images, not over seeds or clusterings."
)
Say = Callable[[str], None]


def run_demo(options: DemoOptions, say: Say) -> dict[str, list[Metric]]:
    started, out = time.monotonic(), Path(options.out)
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    seconds = estimate(options.steps)
    say(f"estimated time: {duration(seconds)} at the current load; it can be stopped and continued at any time")
    results: dict[str, list[Metric]] = {}
    for name, alpha_min in RUNS.items():
        say(f"\n== {name}: alpha_min {alpha_min}")
        _train(options, out / name, alpha_min)
        results[name] = _measure(out / name, say)
    _require_equal_but_for_alpha(out)
    records = [{"run": name, **metric.to_json()} for name, metrics in results.items() for metric in metrics]
    write_json(out / "results.json", records)
    say("\n" + comparison(results["plain"], results["faded"]))
    page = report([out / name for name in RUNS], out / "report.html")
    say(f"\nreport: {page}; results: {out / 'results.json'}; {duration(time.monotonic() - started)} in all")
    return results


def _train(options: DemoOptions, run: Path, alpha_min: float) -> None:
    complete = pretrain(
        TRAIN,
        out=run,
        recipe="demo",
        alpha_min=alpha_min,
        seed=options.seed,
        max_steps=options.steps,
        resume=run.exists(),
    )
    if not complete:
        raise RunError(f"the demo was stopped; the same command continues it (in {run.parent})")


def _measure(run: Path, say: Say) -> list[Metric]:
    wanted = EvaluateOptions(
        str(run),
        train=LABELLED,
        test=TEST,
        images=SEGMENTED,
        metrics=MEASURED,
        baselines=run.name == "plain",
        seed=RunFolder(run).read_config()["seed"],
    )
    metrics: Metrics = evaluate.run(wanted, say)
    return metrics


def _require_equal_but_for_alpha(out: Path) -> None:
    """A folder begun by another version may hold a run of other settings."""
    plain, faded = (RunFolder(out / name).read_config() for name in RUNS)
    plain["model"]["encoder"]["shortcuts"]["alpha_min"] = faded["model"]["encoder"]["shortcuts"]["alpha_min"]
    if plain != faded:
        raise RunError(f"the two runs in {out} differ in more than alpha_min; give another --out")


def estimate(steps: int | None = None) -> float:
    """Seconds that the whole demo will take, from a few real steps on noise."""
    config = demo_config(DataFacts(channels=3, height=32, width=32, count=1))
    trainee = make_trainee(config, *build_task(config, generator_for(0, "init", 0)), Team(0, 1, choose_device("auto")))
    images = torch.randn(config.batch_size, 3, 32, 32, generator=generator_for(0, "init", 1))
    places = torch.arange(config.batch_size)
    batch = Batch(step=0, images_BCHW=images, ids_B=places, places_B=places, labels_B=None, waited=0.0)
    take_step(trainee, batch)  # slower than the others: it makes what they use
    start = time.monotonic()
    for step in range(TIMED_STEPS):
        take_step(trainee, replace(batch, step=1 + step))
    return (time.monotonic() - start) / TIMED_STEPS * (len(RUNS) * (steps or config.steps) + MEASURING)


def comparison(plain: Sequence[Metric], faded: Sequence[Metric]) -> str:
    """The table, and what it says in plain words."""
    rows: list[tuple[str, ...]] = [("", "raw pixels", "untrained", "plain, alpha 1", "faded")]
    verdicts = []
    for name in [metric for measurement in MEASURED for metric in YIELDS[measurement]]:
        columns = [_find(plain, name, "raw pixels"), _find(plain, name, "untrained")]
        columns += [_find(plain, name, "trained"), _find(faded, name, "trained")]
        rows.append((METRICS[name].heading, *(_cell(metric) for metric in columns)))
        raw, untrained, trained, fading = columns
        floor, named = (raw, "raw pixels") if raw else (untrained, "untrained")
        pairs = [(trained, "plain", floor, named), (fading, "faded", trained, "plain")]
        if METRICS[name].better:
            verdicts += [f"{METRICS[name].title}: {_verdict(a, of, b, than)}" for a, of, b, than in pairs if a and b]
    widths = [max(len(row[i]) for row in rows) for i in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    return "\n".join([*lines, "", "with one seed:", *verdicts, "", CAVEAT])


def _find(metrics: Sequence[Metric], name: str, features: str) -> Metric | None:
    found = [m for m in metrics if m.metric == name and m.protocol.get("features") == features]
    return found[0] if found else None


def _cell(metric: Metric | None) -> str:
    if metric is None:
        return "-"
    if not metric.info.is_share:
        return f"{metric.value:.2f}"
    low, high = metric.interval or (None, None)
    interval = "" if low is None or high is None else f" [{100 * low:.1f}, {100 * high:.1f}]"
    return f"{100 * metric.value:.1f}{interval}"


def _verdict(one: Metric, name: str, other: Metric, than: str) -> str:
    """Of two shares of the same metric."""
    gain = 100 * (one.value - other.value)
    if one.interval is None or other.interval is None:
        return f"{name} is {gain:+.1f} points from {than}; no interval, so this is an observation only"
    apart = one.interval[0] > other.interval[1] or one.interval[1] < other.interval[0]
    if not apart:
        return f"{name} is {gain:+.1f} points from {than}, within the intervals: no difference was seen"
    word = "better" if gain * one.info.better > 0 else "worse"
    return f"{name} is {word} than {than} by {abs(gain):.1f} points, beyond the intervals"
