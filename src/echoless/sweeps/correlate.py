"""Do two quantities go together across the runs of a sweep? Pearson's correlation, one point per run.

Figure 5c of an earlier version of arXiv:2404.10947 has it for effective rank and linear probing, at each snapshot.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from echoless.measures import pearson, pearson_interval
from echoless.sweeps.experiment import Experiment

if TYPE_CHECKING:
    from echoless.sweeps.tabulate import SettingRow

FEWEST_RUNS = 3  # two points always lie on a line


@dataclass(frozen=True)
class Correlation:
    """Over the runs that share `columns`."""

    columns: Mapping[str, Any]
    value: float
    interval: tuple[float, float]
    n: int


def correlations(experiment: Experiment, rows: Sequence[SettingRow]) -> list[Correlation]:
    """One for each group of rows that differ in the experiment's contrast alone; none where runs are too few."""
    if experiment.correlate is None:
        return []
    headings = [_heading(experiment, metric) for metric in experiment.correlate]
    groups: dict[tuple[tuple[str, Any], ...], list[tuple[float, float]]] = {}
    for row in rows:
        key = tuple((name, value) for name, value in row.columns.items() if name not in experiment.contrast)
        first, second = (row.values.get(heading, {}) for heading in headings)
        groups.setdefault(key, []).extend((first[seed], second[seed]) for seed in first if seed in second)
    return [_correlation(dict(key), points) for key, points in groups.items() if _tells(points)]


def correlation_table(found: Sequence[Correlation]) -> list[list[str]]:
    """The cells of a table, header first."""
    names = list(dict.fromkeys(name for each in found for name in each.columns))
    lines = [[*names, "runs", "r", "95 % interval"]]
    for each in found:
        low, high = each.interval
        cells = [str(each.columns.get(name, "-")) for name in names]
        lines.append([*cells, str(each.n), f"{each.value:+.2f}", f"[{low:+.2f}, {high:+.2f}]"])
    return lines


def _heading(experiment: Experiment, metric: str) -> str:
    return next((column.heading for column in experiment.quantities if column.metric == metric), "")


def _tells(points: Sequence[tuple[float, float]]) -> bool:
    return len(points) >= FEWEST_RUNS and all(len(set(values)) > 1 for values in zip(*points))


def _correlation(columns: Mapping[str, Any], points: Sequence[tuple[float, float]]) -> Correlation:
    first, second = zip(*points)
    value = pearson(first, second)
    return Correlation(columns, value, pearson_interval(value, len(points)), len(points))
