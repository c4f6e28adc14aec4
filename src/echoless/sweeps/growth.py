"""How does the gain of fading change with the images seen? Curves paired by seed, where they cross, and their ratio.

Images seen are compared on a logarithmic scale: what matters is how many times more there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, median

Curve = Mapping[int, float]  # images seen -> accuracy
CurvesBySeed = Mapping[int, Curve]


@dataclass(frozen=True)
class Spread:
    """A mean over seeds; the interval is Student's, and None for a single seed."""

    mean: float
    interval: tuple[float, float] | None
    seeds: int


def gains(plain: CurvesBySeed, faded: CurvesBySeed) -> dict[int, Spread]:
    """Faded minus plain after each number of images, paired by seed."""
    seeds = [seed for seed in plain if seed in faded]
    counts = sorted({images for seed in seeds for images in plain[seed] if images in faded[seed]})
    found = {}
    for images in counts:
        both = [seed for seed in seeds if images in plain[seed] and images in faded[seed]]
        found[images] = spread([faded[seed][images] - plain[seed][images] for seed in both])
    return found


def crossing(gain_of: Mapping[int, float]) -> float | None:
    """The images from which the gain stays positive: 0 if it always was, None if it ends at or below zero."""
    points = sorted(gain_of.items())
    if not points or points[-1][1] <= 0:
        return None
    for (before, low), (after, high) in reversed(list(pairwise(points))):
        if low <= 0:
            return _between(before, after, -low / (high - low))
    return 0.0


def images_to_reach(curve: Curve, accuracy: float) -> float | None:
    """The images after which the curve first reaches this accuracy; None where it never does."""
    points = sorted(curve.items())
    if not points or points[0][1] >= accuracy:
        return float(points[0][0]) if points else None
    for (before, low), (after, high) in pairwise(points):
        if high >= accuracy:
            return _between(before, after, (accuracy - low) / (high - low))
    return None


def speed_up(plain: Curve, faded: Curve) -> float | None:
    """How many times more images plain needs: the median over the accuracies that plain has at its last halvings.

    An accuracy that the faded curve has at its first point gives a lower bound of the ratio; one that it never reaches
    counts as a ratio of at most 1, by the images it was given.
    """
    if not plain or not faded:
        return None
    longest = max(plain)
    late = [(images, accuracy) for images, accuracy in plain.items() if images >= longest / 4]
    return median(images / (images_to_reach(faded, accuracy) or max(faded)) for images, accuracy in late)


def trend(gain_of: Mapping[int, float]) -> float | None:
    """The change of the gain per doubling of the images, over the last two doublings (least squares)."""
    late = [(math.log2(images), gain) for images, gain in gain_of.items() if images >= max(gain_of) / 4]
    if len(late) < 2:
        return None
    middle_x, middle_y = fmean(x for x, _ in late), fmean(y for _, y in late)
    return sum((x - middle_x) * (y - middle_y) for x, y in late) / sum((x - middle_x) ** 2 for x, _ in late)


def over_seeds(plain: CurvesBySeed, faded: CurvesBySeed, of: Callable[[Curve, Curve], float | None]) -> Spread | None:
    """`of` each seed's pair of curves; None where it has no value for any."""
    values = [value for seed in plain if seed in faded if (value := of(plain[seed], faded[seed])) is not None]
    return spread(values) if values else None


def trend_of_gain(plain: Curve, faded: Curve) -> float | None:
    return trend({images: faded[images] - plain[images] for images in plain if images in faded})


def spread(values: Sequence[float]) -> Spread:
    if len(values) == 1:
        return Spread(values[0], None, 1)
    from echoless.measures import mean_interval

    mean, low, high = mean_interval(values)
    return Spread(mean, (low, high), len(values))


def _between(before: float, after: float, share: float) -> float:
    return math.exp(math.log(before) + share * (math.log(after) - math.log(before)))
