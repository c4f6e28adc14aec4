"""Does one number differ from another, and does the mean of several? Paired over their images, and over their seeds.

An interval over seeds says nothing of other test images: two seeds that gain five of ninety images each have one of no
width. So a gain over seeds is called clear only where the images leave no doubt either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean

from echoless.config.metrics import Metric
from echoless.config.words import independent
from echoless.measures.intervals import ConfidenceInterval, mean_interval, paired_accuracy_interval
from echoless.measures.outcomes import unpack, unpack_groups
from echoless.randomness import generator_for

Interval = tuple[float, float]
Pair = tuple[Metric, Metric]  # one number, and the other from which its gain is counted

_BEYOND = 500  # draws of a bootstrap that lie outside its interval, whatever the level: its ends must not be chance


def over_images(base: Metric, other: Metric, level: float = 0.95) -> ConfidenceInterval | None:
    """Of other minus base; None where they cannot be paired.

    They need one protocol, seed included: it decides the folds, hence the order of the answers.
    """
    if base.protocol.get("seed") != other.protocol.get("seed") or (base.n, base.groups) != (other.n, other.groups):
        return None
    base_N, other_N = (unpack(metric.right, metric.n) for metric in (base, other))
    groups_N = unpack_groups(base.groups, base.n) if base.groups else None
    if base_N is None or other_N is None or (base.groups and groups_N is None):
        return None
    return paired_accuracy_interval(
        base_N,
        other_N,
        generator=generator_for(0, "probe", 1_000_002),
        groups_N=groups_N,
        level=level,
        resamples=round(_BEYOND / (1 - level)),
    )


def paired_interval(one: Metric, other: Metric, among: int = 1) -> Interval | None:
    """Of one minus other, paired over their images where both keep which of them they got right.

    among: how many such differences there are, of which this is the largest; the interval is then 95 % for all of them
    (Bonferroni), and none where the images cannot be paired.
    """
    paired = over_images(other, one, level=1 - 0.05 / among)
    if paired is None:
        return independent(one.value, one.interval, other.value, other.interval) if among == 1 else None
    return paired.low, paired.high


def over_seeds_and_images(pairs: Sequence[Pair], among: int = 1) -> Interval | None:
    """Of the mean gain over seeds: as of two independent sources, the seeds and their test images.

    Seeds share their images, which count as if their answers were alike. None where a number has no interval.
    """
    found = [paired_interval(one, other, among) or paired_interval(one, other) for one, other in pairs]
    ends = [each for each in found if each is not None]
    if len(ends) < len(pairs):
        return None
    low, high = fmean(end[0] for end in ends), fmean(end[1] for end in ends)
    if len(pairs) < 2:
        return low, high
    mean, least, most = mean_interval([one.value - other.value for one, other in pairs], level=1 - 0.05 / among)
    return mean - math.hypot(mean - low, mean - least), mean + math.hypot(high - mean, most - mean)


def verdict(pairs: Sequence[Pair]) -> str:
    """On a mean gain over seeds, the same in a terminal and on a page: clear where both intervals exclude 0."""
    over_seeds = mean_interval([one.value - other.value for one, other in pairs])
    wide = over_seeds_and_images(pairs) or (over_seeds.low, over_seeds.high)
    low, high = min(over_seeds.low, wide[0]), max(over_seeds.high, wide[1])
    return "clearly higher" if low > 0 else "clearly lower" if high < 0 else "not clear"
