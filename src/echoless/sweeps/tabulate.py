"""What did a sweep find? A table of means over seeds beside the published figures, and a CSV with every number."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.metrics import Metric
from echoless.measures import mean_interval
from echoless.runs.results import read_results
from echoless.storage import write_bytes
from echoless.sweeps.experiment import Experiment, Quantity, Trial

Columns = tuple[tuple[str, Any], ...]


@dataclass(frozen=True)
class Row:
    """One setting: the values of each quantity over the seeds, and what was published of it."""

    columns: Mapping[str, Any]
    values: Mapping[str, list[float]]  # title of a quantity -> one value per seed
    published: Mapping[str, float]


def collect(experiment: Experiment, out: Path) -> dict[str, list[Metric]]:
    """Every number of every trial that has any: those of results.json, and those read off the run."""
    found: dict[str, list[Metric]] = {}
    for trial in experiment.trials:
        records = [record for folder in trial.folders_in(out) for record in read_results(folder / "results.json")]
        metrics = [Metric.from_json(record) for record in records]
        if (out / trial.name / "metrics.jsonl").is_file():
            metrics += [metric for reading in experiment.readings for metric in reading(out / trial.name)]
        if metrics:
            found[trial.name] = metrics
    return found


def rows(experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> list[Row]:
    """In the order of the trials; where the experiment has columns from the protocol, in the order they were found."""
    grouped: dict[Columns, dict[str, list[float]]] = {}
    for trial in experiment.trials:
        for key in _places(experiment, trial, found.get(trial.name, ())):
            values = grouped.setdefault(key, {quantity.title: [] for quantity in experiment.quantities})
            for quantity in experiment.quantities:
                seen = [m.value for m in found.get(trial.name, ()) if _shown(experiment, quantity, m, dict(key))]
                values[quantity.title] += [_one(quantity, seen)] if seen else []
    return [Row(dict(key), values, _published(experiment, dict(key))) for key, values in grouped.items()]


def _places(experiment: Experiment, trial: Trial, metrics: Iterable[Metric]) -> list[Columns]:
    """The rows that a trial contributes to."""
    if not experiment.by:
        return [trial.group]
    shown = [m for m in metrics if any(quantity.belongs(m) for quantity in experiment.quantities)]
    extra = [tuple((key, m.protocol[key]) for key in experiment.by if key in m.protocol) for m in shown]
    return list(dict.fromkeys(trial.group + columns for columns in extra)) or [trial.group]


def _shown(experiment: Experiment, quantity: Quantity, metric: Metric, columns: Mapping[str, Any]) -> bool:
    """Whether a number belongs into this cell; numbers at a step or of a scan only where the table asks for them."""
    if not quantity.belongs(metric):
        return False
    unasked = [key for key in ("step", "scan") if key not in experiment.by and key not in quantity.protocol]
    if any(key in metric.protocol for key in unasked):
        return False
    return all(metric.protocol.get(key) == columns.get(key) for key in experiment.by)


def _one(quantity: Quantity, values: Sequence[float]) -> float:
    if quantity.best is None:
        return values[-1]
    return max(values) if quantity.best == "max" else min(values)


def _published(experiment: Experiment, columns: Mapping[str, Any]) -> dict[str, float]:
    return {
        quantity.title: figure.value
        for quantity in experiment.quantities
        for figure in experiment.published
        if figure.metric == quantity.metric and all(columns.get(k) == v for k, v in figure.settings.items())
    }


def table(experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> str:
    """For a terminal, with what has to be known to read it."""
    shown = rows(experiment, found)
    names = list(dict.fromkeys(key for row in shown for key in row.columns))
    header = [*names, "seeds"]
    for quantity in experiment.quantities:
        header.append(quantity.title)
        if any(quantity.title in row.published for row in shown):
            header.append("paper")
    lines = [header] + [_line(experiment, row, names, header) for row in shown]
    legend = "mean over seeds ± half of the 95 % interval (Student's t); a single seed has none"
    return "\n".join([experiment.title, "", aligned(lines), "", legend, *experiment.notes])


def _line(experiment: Experiment, row: Row, names: Sequence[str], header: Sequence[str]) -> list[str]:
    cells = [_text(row.columns.get(name, "-")) for name in names]
    cells.append(str(max((len(values) for values in row.values.values()), default=0)))
    for quantity in experiment.quantities:
        cells.append(summary(quantity, row.values[quantity.title]))
        following = header[len(cells)] if len(cells) < len(header) else ""
        if following == "paper":
            figure = row.published.get(quantity.title)
            cells.append("-" if figure is None else _number(quantity, figure))
    return cells


def summary(quantity: Quantity, values: Sequence[float]) -> str:
    """`41.2 ± 1.3`, `41.2`, or `-`."""
    if not values:
        return "-"
    if len(values) == 1:
        return _number(quantity, values[0])
    mean, low, high = mean_interval(values)
    return f"{_number(quantity, mean)} ± {_number(quantity, (high - low) / 2)}"


def _number(quantity: Quantity, value: float) -> str:
    return f"{100 * value:.1f}" if quantity.share else f"{value:.3g}"


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths)).rstrip() for line in lines)


def write_csv(path: Path, experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> None:
    """One row for each trial and number: its settings, the value, its interval over images, its protocol as JSON."""
    settings = list(dict.fromkeys(key for trial in experiment.trials for key in trial.settings))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", *settings, "metric", "value", "low", "high", "n", "protocol"])
    for trial in experiment.trials:
        for metric in found.get(trial.name, ()):
            low, high = metric.interval or ("", "")
            protocol = json.dumps(metric.protocol, sort_keys=True)
            chosen = [trial.settings.get(key, "") for key in settings]
            writer.writerow([trial.name, *chosen, metric.metric, metric.value, low, high, metric.n, protocol])
    write_bytes(path, text.getvalue().encode())
