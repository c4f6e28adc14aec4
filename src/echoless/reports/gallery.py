"""Which runs are in a folder, and what does the gallery show of each? Symbolic links are not followed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from echoless.config.headline import ONLY_SEEN, comparable, only_seen, strongest_of_each
from echoless.config.metrics import METRICS, Metric, number, on_same_images
from echoless.reports.charts import sparkline
from echoless.reports.collect import RunData, looks_like_a_run, printable_path
from echoless.reports.facts import headline, status

DEEPEST = 4  # folders below DIR
ON_A_CARD = 3  # numbers, the most important that were measured
_WATCHED = (
    "config.json",
    "metrics.jsonl",
    "results.json",
    "about.json",
    "log.txt",
    "figures",
    "samples",
    "checkpoints",
)


def find_runs(root: Path) -> dict[str, Path]:
    """Every run below `root` by its relative path, which is its name; `root` itself if it is one."""
    if looks_like_a_run(root):
        return {printable_path(Path(root.resolve().name)): root}
    return {printable_path(path.relative_to(root)): path for path in sorted(_walk(root, DEEPEST))}


def _walk(folder: Path, deep: int) -> Iterator[Path]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False) or entry.name.startswith("."):
            continue
        path = folder / entry.name
        if looks_like_a_run(path):
            yield path
        elif deep > 1:
            yield from _walk(path, deep - 1)


def state_of(path: Path) -> str:
    """A string that changes when a file behind the page changes."""
    words = []
    for name in _WATCHED:
        for file in [path / name, *sorted((path / name).glob("*") if name in ("figures", "samples") else ())]:
            try:
                seen = file.stat()
            except OSError:
                continue
            words.append(f"{file.name} {seen.st_mtime_ns} {seen.st_size}")
    return hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def card(name: str, run: RunData) -> dict[str, Any]:
    """What the gallery shows of a run."""
    losses = run.series("loss").values
    numbers = _numbers(run)
    return {
        "name": name,
        "status": status(run),
        "headline": headline(run),
        "share": None if run.steps is None else min(1.0, run.steps_done / run.steps),
        "loss": f"loss {losses[-1]:.4g}" if losses else "",
        "spark": sparkline(losses) if len(losses) > 1 else "",
        "numbers": [(metric.info.title, number(metric)) for metric in numbers],
        "measured": _images_of(numbers[0]) if numbers else ONLY_SEEN if only_seen(run.results) else "",
    }


def _numbers(run: RunData) -> list[Metric]:
    """Of the most important, all on the images of the first of them: of its strongest evaluation."""
    found = [metric for metric in run.results if comparable(metric)]
    each = strongest_of_each(found)
    first = next((each[name] for name in METRICS if name in each), None)
    if first is None:
        return []
    shown = strongest_of_each(metric for metric in found if on_same_images(metric, first))
    return [shown[name] for name in METRICS if name in shown][:ON_A_CARD]


def _images_of(metric: Metric) -> str:
    """The data behind a number: without it, numbers of two cards look comparable."""
    named = metric.protocol.get("test") or metric.protocol.get("train")
    return f"measured on {metric.n:,} images{f' of {named}' if named else ''}"
