"""What does `--json` print of a result? One flat object per thing: a number with its protocol, a file, a finding.

`records_of` takes any result that is data. The others say what their result is a number of.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from echoless.config import options as of
from echoless.config.metrics import Metric

Records = Iterable[Mapping[str, Any]]


def records_of(options: Any, result: Any) -> Records:
    """A record for each item of a list, or for the result itself; none where there is no result."""
    if result is None:
        return
    for item in result if isinstance(result, list | tuple) else [result]:
        found = plain(item)
        yield found if isinstance(found, dict) else {"result": found}


def plain(value: Any) -> Any:
    """The value as JSON has it: a dataclass as an object, a path as text, no NaN."""
    if isinstance(value, Metric):
        return plain(value.to_json())
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def trained(options: of.PretrainOptions, complete: bool) -> Records:
    yield {"run": str(options.out), "complete": complete}


def tuned(options: of.FinetuneOptions, metric: Metric | None) -> Records:
    yield {"run": str(options.out), "complete": metric is not None} | (plain(metric) if metric is not None else {})


def runs_and_metrics(options: Any, found: Mapping[str, Iterable[Metric]]) -> Iterator[dict[str, Any]]:
    """One record for each number, with the name of its run."""
    for run, metrics in found.items():
        for metric in metrics:
            yield {"run": run} | plain(metric)


def swept(options: of.SweepOptions, result: Any) -> Records:
    """The commands of --print; else every number, then the runs that failed."""
    yield from ({"command": line} for line in result.commands)
    yield from runs_and_metrics(options, result.metrics)
    yield from ({"run": name, "failed": True} for name in result.failed)


def outcome(options: of.TrialOptions, ended: Any) -> Records:
    yield {"trial": options.name} | plain(ended)


def vectors(options: of.EmbedOptions, rows: int) -> Records:
    yield {"file": str(options.out), "vectors": rows}


def images(options: of.SampleOptions, count: int) -> Records:
    yield {"folder": str(options.out), "images": count}


def page(options: of.ReportOptions, path: Path) -> Records:
    yield {"file": str(path), "bytes": path.stat().st_size}


def listed_runs(options: of.RunsOptions, listing: Any) -> Records:
    yield from ({"action": options.action} | plain(run) for run in listing)


def recipes(options: of.RecipesOptions, text: str) -> Records:
    """Names and first lines: the text is for people."""
    from echoless.sweeps.papers import PAPERS
    from echoless.verbs.recipes import first_line, list_recipes

    every = [{"recipe": name, "about": about} for name, about in list_recipes().items()]
    every += [{"experiment": name, "about": first_line(build)} for name, build in PAPERS.items()]
    yield from (entry for entry in every if options.name is None or options.name in entry.values())


def found_images(options: of.SearchOptions, result: Any) -> Iterator[dict[str, Any]]:
    """Every neighbour, duplicate and outlier; then how many there are, the page, and how they were found."""
    kinds = ("neighbours", "duplicates", "outliers")
    tables = {kind: table for kind in kinds if (table := getattr(result, kind)) is not None}
    for kind, table in tables.items():
        yield from ({"kind": kind[:-1], **plain(row)} for row in table.to_pylist())
    counts = {kind: len(table) for kind, table in tables.items()}
    yield {"kind": "summary", **counts, "page": str(result.page), "notes": list(result.notes)}
