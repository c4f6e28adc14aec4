"""Where is a value drawn on an axis, and where are the ticks?"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median


@dataclass(frozen=True)
class Axis:
    """A range of values, linear or logarithmic."""

    low: float
    high: float
    log: bool = False

    def place(self, value: float) -> float:
        """0 at the low end, 1 at the high end; what lies outside stays at the end."""
        low, high, value = (self._scaled(each) for each in (self.low, self.high, max(value, self.low)))
        return min(max((value - low) / (high - low), 0.0), 1.0)

    def ticks(self, about: int = 5) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high, about)

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self.log else value


def fit(values: Iterable[float], *, log: bool = False, include: tuple[float, ...] = (), pad: float = 0.04) -> Axis:
    """An axis that holds all values; logarithmic only where that is possible and more than a decade is covered."""
    kept = [value for value in (*values, *include) if math.isfinite(value)]
    low, high = (min(kept), max(kept)) if kept else (0.0, 1.0)
    if log and low > 0 and high / low > 10:
        return Axis(low / 1.1, high * 1.1, log=True)
    if high - low <= 1e-12 * max(abs(low), abs(high), 1e-300):
        half = abs(high) / 2 or 0.5
        return Axis(low - half, high + half)
    room = pad * (high - low)
    return Axis(low if low in include else low - room, high if high in include else high + room)


def _linear_ticks(low: float, high: float, about: int) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / about
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= 0.7 * rough)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(index * step, 12 - math.floor(math.log10(step))) for index in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    powers = range(math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9) + 1)
    every = max(1, math.ceil(len(powers) / 6))
    ticks = [10.0**power for power in powers if power % every == 0]
    if len(ticks) >= 2:
        return ticks
    candidates = [factor * 10.0**power for power in range(powers.start - 1, powers.stop + 1) for factor in (1, 2, 5)]
    return [tick for tick in candidates if low <= tick <= high]


def tick_text(value: float) -> str:
    """As short as it can be: 0.5, 1200, 40k, 1e-05."""
    if value == 0:
        return "0"
    if abs(value) >= 10_000 and value % 1000 == 0 and abs(value) < 1e6:
        return f"{value / 1000:g}k"
    if abs(value) >= 1e6 and value % 1e5 == 0 and abs(value) < 1e9:
        return f"{value / 1e6:g}M"
    return f"{value:.4g}"


def thin(xs: list[float], ys: list[float], most: int) -> tuple[list[float], list[float]]:
    """At most `most` points: minimum and maximum of equal intervals, so that no spike is lost."""
    if len(xs) <= most:
        return xs, ys
    spans = most // 2
    kept: list[int] = []
    for span in range(spans):
        first, last = span * len(xs) // spans, (span + 1) * len(xs) // spans
        inside = range(first, last)
        kept += sorted({min(inside, key=lambda i: ys[i]), max(inside, key=lambda i: ys[i])})
    kept[0], kept[-1] = 0, len(xs) - 1
    return [xs[i] for i in kept], [ys[i] for i in kept]


def medians(xs: list[float], ys: list[float], spans: int) -> tuple[list[float], list[float]]:
    """The median of each of `spans` equal parts, at its middle: the trend without noise and spikes."""
    ends = [index * len(xs) // spans for index in range(spans + 1)]
    parts = [(first, last) for first, last in pairwise(ends) if last > first]
    return [fmean(xs[first:last]) for first, last in parts], [median(ys[first:last]) for first, last in parts]
