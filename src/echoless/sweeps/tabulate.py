"""What did a sweep find? A table of means over seeds beside the published figures, and a CSV with every number."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.headline import no_test
from echoless.config.metrics import Metric, info_of
from echoless.config.tables import aligned
from echoless.measures import mean_interval
from echoless.reports.gains import Pair, verdict
from echoless.reports.page import Findings
from echoless.runs.results import read_results
from echoless.storage import write_bytes
from echoless.sweeps.baselines import against_raw_pixels, baseline_lines, baselines_of, is_baseline, measured_with
from echoless.sweeps.correlate import correlation_table, correlations
from echoless.sweeps.experiment import Experiment, Quantity, Trial

_CLEAR = "differences, paired by seed; clear where the interval over seeds excludes 0, and the one over test images too"
Columns = tuple[tuple[str, Any], ...]
NumbersBySeed = dict[Any, Metric]


@dataclass(frozen=True)
class SettingRow:
    """One setting: the numbers of each quantity by seed, and the published values."""

    columns: Mapping[str, Any]
    numbers: Mapping[str, NumbersBySeed]  # heading of a quantity -> seed -> number
    published: Mapping[str, float]

    @property
    def values(self) -> dict[str, dict[Any, float]]:
        return {name: {seed: each.value for seed, each in found.items()} for name, found in self.numbers.items()}

    @property
    def seeds(self) -> int:
        return max((len(values) for values in self.values.values()), default=0)


def collect(experiment: Experiment, out: Path) -> dict[str, list[Metric]]:
    """Every number of every trial that has any: those of results.json, and those computed from its log."""
    found: dict[str, list[Metric]] = {}
    for trial in experiment.trials:
        records = [record for folder in trial.folders_in(out) for record in read_results(folder / "results.json")]
        metrics = [Metric.from_json(record) for record in records]
        if (out / trial.name / "metrics.jsonl").is_file():
            metrics += [metric for reading in experiment.readings for metric in reading(out / trial.name)]
        if metrics:
            found[trial.name] = metrics
    return found


def rows(experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> list[SettingRow]:
    """In the order of the trials; where the experiment has columns from the protocol, in the order they were found."""
    grouped: dict[Columns, dict[str, NumbersBySeed]] = {}
    for trial in experiment.trials:
        metrics = found.get(trial.name, ())
        for key in _row_keys(experiment, trial, metrics):
            numbers = grouped.setdefault(key, {quantity.heading: {} for quantity in experiment.quantities})
            for quantity in experiment.quantities:
                cell = [m for m in metrics if _belongs(experiment, quantity, m, dict(key))]
                if cell:
                    numbers[quantity.heading][trial.settings.get("seed")] = quantity.choose(cell)
    return [SettingRow(dict(key), numbers, _published(experiment, dict(key))) for key, numbers in grouped.items()]


def _row_keys(experiment: Experiment, trial: Trial, metrics: Iterable[Metric]) -> list[Columns]:
    """The rows that a trial contributes to."""
    if not experiment.by:
        return [trial.group]
    shown = [m for m in metrics if any(quantity.belongs(m) for quantity in experiment.quantities)]
    extra = [tuple((key, m.protocol[key]) for key in experiment.by if key in m.protocol) for m in shown]
    return list(dict.fromkeys(trial.group + columns for columns in extra)) or [trial.group]


def _belongs(experiment: Experiment, quantity: Quantity, metric: Metric, columns: Mapping[str, Any]) -> bool:
    """Whether a number belongs into this cell; numbers at a step or of a scan only where the table asks for them."""
    if not quantity.belongs(metric):
        return False
    unasked = [key for key in ("step", "scan") if key not in experiment.by and key not in quantity.protocol]
    if any(key in metric.protocol for key in unasked):
        return False
    return all(metric.protocol.get(key) == columns.get(key) for key in experiment.by)


def _published(experiment: Experiment, columns: Mapping[str, Any]) -> dict[str, float]:
    return {
        quantity.heading: figure.value
        for quantity in experiment.quantities
        for figure in experiment.published
        if figure.metric == quantity.metric and all(columns.get(k) == v for k, v in figure.settings.items())
    }


def table(experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> str:
    """For a terminal: means over seeds, differences from the baseline, and notes."""
    shown = findings(experiment, found)
    (_, first), *more = shown.tables
    (seeds, *notes) = shown.notes
    parts = [shown.title, "", aligned(first), "", seeds, *shown.answers]
    for caption, lines in more:
        parts += ["", caption, "", aligned(lines), ""]
    return "\n".join([*parts, *shown.warnings, *notes])


def findings(experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> Findings:
    """The same as tables; the first note is on the number of seeds."""
    found_rows = rows(experiment, found)
    names = list(dict.fromkeys(key for row in found_rows for key in row.columns))
    header = [*names, "seeds"]
    for quantity in experiment.quantities:
        header.append(quantity.heading)
        if _has_published(quantity, found_rows):
            header.append("paper")
    known = baselines_of(experiment, found)
    lines = [header] + [_line(experiment, row, names, found_rows) for row in found_rows]
    tables = [("", lines + baseline_lines(known, experiment, header))]
    if differences := _differences(experiment, found_rows, names):
        tables.append((_CLEAR, differences))
    if experiment.correlate and (correlated := correlations(experiment, found_rows)):
        pair = " and ".join(info_of(metric).heading for metric in experiment.correlate)
        tables.append((f"Pearson's correlation of {pair}, over runs", correlation_table(correlated)))
    warnings = experiment.warnings or _seen_in_training(experiment, found)
    return Findings(
        title=experiment.title,
        tables=tables,
        answers=against_raw_pixels(known, experiment, found),
        warnings=warnings,
        notes=(seeds_note(found_rows), *measured_with(found), *experiment.notes),
    )


def _seen_in_training(experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> tuple[str, ...]:
    """A sentence where accuracies of the table are no test for another reason: labels trained the encoders."""
    shown = [
        m for each in found.values() for m in each if any(quantity.belongs(m) for quantity in experiment.quantities)
    ]
    sentences = [sentence for metric in shown if metric.info.labelled and (sentence := no_test(metric))]
    return (f"No test: {sentences[0]}.",) if sentences else ()


def seeds_note(found_rows: Sequence[SettingRow]) -> str:
    """The number of seeds, and what the intervals are."""
    counts = sorted({row.seeds for row in found_rows if row.seeds})
    if not counts or counts == [1]:
        return "one seed: no interval over seeds, so a difference between rows may be chance"
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    return f"{seeds} seeds: mean ± half of the 95 % interval over seeds (Student's t); one seed alone has no interval"


def _has_published(quantity: Quantity, found_rows: Sequence[SettingRow]) -> bool:
    return any(quantity.heading in row.published for row in found_rows)


def _line(experiment: Experiment, row: SettingRow, names: Sequence[str], found_rows: Sequence[SettingRow]) -> list[str]:
    cells = [*(_text(row.columns.get(name, "-")) for name in names), str(row.seeds)]
    for quantity in experiment.quantities:
        cells.append(summary(quantity, list(row.values[quantity.heading].values())))
        if _has_published(quantity, found_rows):
            figure = row.published.get(quantity.heading)
            cells.append("-" if figure is None else quantity.number(figure))
    return cells


def summary(quantity: Quantity, values: Sequence[float], sign: str = "") -> str:
    """`41.2 ± 1.3`, `41.2`, or `-`; with the sign "+", `+1.2 ± 0.3`."""
    if not values:
        return "-"
    mean = values[0] if len(values) == 1 else mean_interval(values).value
    shown = quantity.number(mean, sign)
    if len(values) == 1:
        return shown
    _, low, high = mean_interval(values)
    return f"{shown} ± {quantity.number((high - low) / 2)}"


def _differences(experiment: Experiment, found_rows: Sequence[SettingRow], names: Sequence[str]) -> list[list[str]]:
    """A line for every row that shares two seeds or more with its baseline; nothing where none does."""
    lines = []
    for row in found_rows:
        baseline = _baseline(experiment, row, found_rows)
        pairs = {quantity.heading: _paired(row, baseline, quantity.heading) for quantity in experiment.quantities}
        shared = max(map(len, pairs.values()), default=0)
        if row is not baseline and shared >= 2:
            settings = [_text(row.columns.get(name, "-")) for name in names]
            cells = [_gain(quantity, pairs[quantity.heading]) for quantity in experiment.quantities]
            lines.append([*settings, _contrast(row, baseline), str(shared), *cells])
    header = [*names, "against", "seeds", *(quantity.heading for quantity in experiment.quantities)]
    return [header, *lines] if lines else []


def _gain(quantity: Quantity, pairs: Sequence[Pair]) -> str:
    """`+1.2 ± 0.3, clearly higher`."""
    gains = summary(quantity, [one.value - other.value for one, other in pairs], "+")
    return f"{gains}, {verdict(pairs)}" if len(pairs) > 1 else gains


def _baseline(experiment: Experiment, row: SettingRow, found_rows: Sequence[SettingRow]) -> SettingRow:
    """Of the rows that differ from this one in the experiment's contrast alone, the standard residual network or the
    first."""

    def others(columns: Mapping[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in columns.items() if key not in experiment.contrast}

    candidates = [each for each in found_rows if others(each.columns) == others(row.columns)]
    return next((each for each in candidates if each.columns.get("alpha_min") == 1.0), candidates[0])


def _contrast(row: SettingRow, baseline: SettingRow) -> str:
    """The settings of the baseline that differ from this row."""
    differing = [key for key, value in baseline.columns.items() if row.columns.get(key) != value]
    return ", ".join(f"{key} {_text(baseline.columns[key])}" for key in differing if key != "effective")


def _paired(row: SettingRow, baseline: SettingRow, heading: str) -> list[Pair]:
    ours, theirs = row.numbers[heading], baseline.numbers[heading]
    return [(number, theirs[seed]) for seed, number in ours.items() if seed in theirs]


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def write_csv(path: Path, experiment: Experiment, found: Mapping[str, Sequence[Metric]]) -> None:
    """One row for each trial and number: its settings, the value, its interval over images, its protocol as JSON.

    Baselines and correlations over runs come last, without a trial: they belong to no setting.
    """
    settings = list(dict.fromkeys(key for trial in experiment.trials for key in trial.settings))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", *settings, "metric", "value", "low", "high", "n", "protocol"])
    for trial in experiment.trials:
        chosen = [trial.settings.get(key, "") for key in settings]
        own = [metric for metric in found.get(trial.name, ()) if not is_baseline(metric)]
        writer.writerows([trial.name, *chosen, *_as_cells(metric)] for metric in own)
    baselines = [metric for metrics in found.values() for metric in metrics if is_baseline(metric)]
    writer.writerows(["", *("" for _ in settings), *_as_cells(metric)] for metric in baselines)
    for each in correlations(experiment, rows(experiment, found)):
        protocol = json.dumps({**each.columns, "between": " and ".join(experiment.correlate or ())}, sort_keys=True)
        writer.writerow(["", *("" for _ in settings), "pearson", each.value, *each.interval, each.n, protocol])
    write_bytes(path, text.getvalue().encode())


def _as_cells(metric: Metric) -> list[Any]:
    low, high = metric.interval or ("", "")
    return [metric.metric, metric.value, low, high, metric.n, json.dumps(metric.protocol, sort_keys=True)]
