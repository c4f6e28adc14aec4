"""What is a number? A metric with its protocol: the same record goes to results.json, the terminal and the report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

_SHARES = ("knn", "linear", "miou", "accuracy", "finetune", "tokencut", "segprobe", "precision", "recall")


@dataclass(frozen=True, kw_only=True, slots=True)
class Metric:
    """`protocol` says everything that decides the value: features, layer, pooling, k, folds, seed, ..."""

    metric: str
    value: float
    n: int
    interval: tuple[float, float] | None = None  # bootstrap, 95 %
    protocol: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        interval = None if self.interval is None else list(self.interval)
        return {
            "metric": self.metric,
            "value": self.value,
            "n": self.n,
            "interval": interval,
            "protocol": self.protocol,
        }

    @staticmethod
    def from_json(record: dict[str, Any]) -> Metric:
        interval = record.get("interval")
        return Metric(
            metric=record["metric"],
            value=record["value"],
            n=record["n"],
            interval=None if interval is None else (interval[0], interval[1]),
            protocol=record["protocol"],
        )

    def __str__(self) -> str:
        return f"{self.metric} {number(self)}{interval_text(self)}  n={self.n}  {describe(self.protocol)}"


def describe(protocol: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in protocol.items() if value is not None)


def is_share(metric: Metric) -> bool:
    """Is it a part of 1, to be written in per cent?"""
    return metric.metric.startswith(_SHARES)


def number(metric: Metric) -> str:
    return f"{100 * metric.value:.2f} %" if is_share(metric) else f"{metric.value:.4g}"


def interval_text(metric: Metric) -> str:
    if metric.interval is None:
        return ""
    low, high = metric.interval
    return f" [{100 * low:.2f}, {100 * high:.2f}]" if is_share(metric) else f" [{low:.4g}, {high:.4g}]"


def table(metrics: Sequence[Metric]) -> str:
    """Rows for a terminal: the value with its interval first, then everything that the value depends on."""
    rows = [(m.metric, number(m) + interval_text(m), f"n={m.n}", describe(m.protocol)) for m in metrics]
    if not rows:
        return "nothing was measured"
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    return "\n".join("  ".join([*(cell.ljust(w) for cell, w in zip(row, widths)), row[3]]) for row in rows)
