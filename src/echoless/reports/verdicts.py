"""How did training go, in plain words? One line per quantity, with the rule that produced it.

The rules compare averages over parts of a run, so that the noise of single steps does not matter. Each rule is printed
with its verdict, so that readers can check it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev
from typing import Literal

from echoless.config.counts import speed_in_words
from echoless.config.words import LOWEST_RANK
from echoless.reports.collect import RunData, Series

Tone = Literal["good", "neutral", "warning"]
TOO_SHORT = "too short to tell"
FEWEST = 20  # with fewer values, no trend is reported


@dataclass(frozen=True)
class Verdict:
    """`word` is the summary, `sentence` has the figures, `rule` is the criterion that was applied."""

    quantity: str
    word: str
    sentence: str
    rule: str
    tone: Tone = "neutral"


def judge(run: RunData) -> list[Verdict]:
    """A verdict on every quantity that the run recorded."""
    judges: list[tuple[str, Callable[[RunData], Verdict]]] = [
        ("loss", loss),
        ("lr", learning_rate),
        ("gradient_norm", gradient_norm),
        ("feature_norm", feature_norms),
        ("rankme", effective_rank),
        ("images_per_second", speed),
    ]
    recorded = {key for line in run.lines for key in line}
    return [make(run) for key, make in judges if key in recorded]


def loss(run: RunData) -> Verdict:
    rule = (
        "still improving if the mean of the last tenth of the run is below that of the tenth before by more than two "
        "standard errors of their difference and by more than 0.2 %; rising if it is above by as much; else flat"
    )
    series = run.series("loss")
    missing = sum(line.get("loss", 0) is None for line in run.lines)
    if missing:
        return Verdict("loss", "not finite", f"the loss was not a finite number at {missing} steps", rule, "warning")
    if len(series) < FEWEST:
        return _too_short("loss", series, rule)
    before, after = _tenths(series.values)
    change, error = fmean(after) - fmean(before), _standard_error(before, after)
    matters = abs(change) > max(2 * error, 0.002 * abs(fmean(before)))
    figures = f"{fmean(before):.4g} in the tenth before, {fmean(after):.4g} in the last (standard error {error:.2g})"
    if matters and change < 0:
        hint = "; a longer run may help" if run.complete else ""
        return Verdict("loss", "still improving", figures + hint, rule, "good")
    if matters:
        return Verdict("loss", "rising", figures, rule, "warning")
    return Verdict("loss", "flat", figures, rule)


def learning_rate(run: RunData) -> Verdict:
    rule = "warming up while it rises; constant within 1 % of its peak; decayed below 1 % of its peak; else falling"
    series = run.series("lr")
    if len(series) < 2:
        return _too_short("learning rate", series, rule)
    peak, last, before = max(series.values), series.values[-1], series.values[-2]
    if last > before * 1.001:
        word = "warming up"
    elif last >= 0.99 * peak:
        word = "constant"
    else:
        word = "decayed" if last < 0.01 * peak else "falling"
    return Verdict("learning rate", word, f"peak {peak:.3g}, now {last:.3g}", rule)


def gradient_norm(run: RunData) -> Verdict:
    rule = "growing if the median of the last fifth is above 3 times that of the middle fifth; spikes are values above "
    rule += "10 times the median of the run after its first twentieth; else steady"
    series = run.series("gradient_norm")
    if len(series) < FEWEST:
        return _too_short("gradient norm", series, rule)
    values = series.values[len(series) // 20 :]
    fifth = max(1, len(values) // 5)
    middle, last = median(values[2 * fifth : 3 * fifth]), median(values[-fifth:])
    high = 10 * median(values)
    spikes = [step for step, value in zip(series.steps[-len(values) :], values) if value > high]
    figures = f"median {middle:.3g} in the middle of the run, {last:.3g} at its end"
    if spikes:
        where = ", ".join(map(str, spikes[:5])) + (", ..." if len(spikes) > 5 else "")
        found, at = (f"{len(spikes)} spikes", "at steps") if len(spikes) > 1 else ("1 spike", "at step")
        return Verdict("gradient norm", found, f"{figures}; {at} {where}", rule, "warning")
    if last > 3 * middle:
        return Verdict("gradient norm", "growing", figures, rule, "warning")
    return Verdict("gradient norm", "steady", figures, rule, "good")


def feature_norms(run: RunData) -> Verdict:
    rule = "growing if the mean token norm of any block ends above 3 times its value at a quarter of the run"
    growth = {}
    for block in run.blocks("feature_norm"):
        series = run.series(f"feature_norm/{block}")
        if len(series) >= 4:
            growth[block] = series.values[-1] / max(series.values[len(series) // 4], 1e-12)
    if not growth:
        return Verdict("feature norms", TOO_SHORT, "fewer than four measurements", rule)
    worst = max(growth, key=lambda block: growth[block])
    last = run.series(f"feature_norm/{worst}").values[-1]
    sentence = f"most in {worst}: {growth[worst]:.2g} times since a quarter of the run, now {last:.3g}"
    if growth[worst] > 3:
        return Verdict("feature norms", "growing", sentence, rule, "warning")
    return Verdict("feature norms", "steady", sentence, rule, "good")


def effective_rank(run: RunData) -> Verdict:
    rule = (
        f"collapsed if RankMe ends below {LOWEST_RANK:g}; a fraction of its peak if it ends below a quarter of that; "
        "rising if it ends more than 5 % above its value at 80 % of the run; falling if as much below; else flat"
    )
    series = run.series("rankme")
    if len(series) < 4:
        return _too_short("effective rank", series, rule)
    peak, last = max(series.values), series.values[-1]
    earlier = series.values[min(len(series) - 2, round(0.8 * (len(series) - 1)))]
    figures = f"RankMe {last:.3g} at the end, {earlier:.3g} at 80 % of the run, peak {peak:.3g}"
    if last < LOWEST_RANK:
        return Verdict("effective rank", "collapsed", figures, rule, "warning")
    if last < 0.25 * peak:
        return Verdict("effective rank", "a fraction of its peak", figures, rule, "warning")
    if last > 1.05 * earlier:
        return Verdict("effective rank", "rising", figures, rule, "good")
    return Verdict("effective rank", "falling" if last < 0.95 * earlier else "flat", figures, rule)


def speed(run: RunData) -> Verdict:
    rule = (
        "waiting for data if more than 20 % of the time is spent waiting; slower if the median of the last fifth is "
        "below 80 % of the run's; uneven if more than a tenth of the values are; else steady"
    )
    series = run.series("images_per_second")
    values = [value for value in series.values if value > 0]
    if len(values) < FEWEST:
        return _too_short("images/s", series, rule)
    whole, last, slow = median(values), median(values[-len(values) // 5 :]), sorted(values)[len(values) // 10]
    waiting = run.series("waiting").values
    waited = median(waiting) if waiting else 0.0
    figures = (
        f"median {speed_in_words(whole)}, {speed_in_words(last)} at the end, at most {speed_in_words(slow)} in a tenth "
        f"of the run, {100 * waited:.0f} % of the time waiting for data"
    )
    if waited > 0.2:
        return Verdict("images/s", "waiting for data", figures + ": more --workers may help", rule, "warning")
    if last < 0.8 * whole:
        return Verdict("images/s", "slower", figures, rule, "warning")
    if slow < 0.8 * whole:
        return Verdict("images/s", "uneven", f"{figures}: another program may have used the machine", rule)
    return Verdict("images/s", "steady", figures, rule, "good")


def _too_short(quantity: str, series: Series, rule: str) -> Verdict:
    return Verdict(quantity, TOO_SHORT, f"{len(series)} values so far", rule)


def _tenths(values: Sequence[float]) -> tuple[Sequence[float], Sequence[float]]:
    tenth = max(5, len(values) // 10)
    return values[-2 * tenth : -tenth], values[-tenth:]


def _standard_error(before: Sequence[float], after: Sequence[float]) -> float:
    return math.sqrt(stdev(before) ** 2 / len(before) + stdev(after) ** 2 / len(after))
