"""What a number is (record), and how it is shown (render)."""

from echoless.reports.record import Metric, describe, table

__all__ = ["Metric", "describe", "table"]
