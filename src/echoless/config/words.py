"""What do the numbers of an evaluation say in plain words? Does it beat raw pixels, is it healthy, what comes next.

Each sentence follows from the numbers by a rule that stands beside it. A difference counts where its own 95 % interval
does not hold 0: intervals of two values may overlap although they differ, above all on the same images.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from echoless.config.counts import counted, joined
from echoless.config.headline import no_test, strongest, strongest_of_each, unseen
from echoless.config.metrics import NAMES_OF_SETS, Metric, number, on_same_images

BASELINES = ("raw pixels", "untrained")
SPOKEN_OF = ("linear", "knn")  # the accuracy that is spoken of: the first that the strongest evaluation has
LOWEST_RANK = 2.0  # RankMe below which features are one or two directions: collapsed
FEW = 4.0  # RankMe below which nobody should be reassured: of centred features, one direction may be nearly all
EASY = 0.97  # accuracy of a baseline from which a test tells no encoders apart
FEWEST = 20  # images, or files of tiles: on fewer, a single answer moves an accuracy by more than most differences
_FEWEST = 10  # images: the rank of so few is low whatever the encoder
# Entries in which baselines may differ: they have no checkpoint.
_OF_THE_FEATURES = ("features", "checkpoint", "layer", "layers", "pooling", *NAMES_OF_SETS)
_LONGER = {  # by the verb that trained the run, in options that it has; other weights were trained by none
    "pretrain": "--resume with more --max-steps, or a new run with a longer --time",
    "finetune": "--epochs, or --resume with more --max-steps",
}
VERBS = {1: "beats", 0: "does not clearly differ from", -1: "is worse than"}  # by the order of two numbers
# A protocol names no place of this machine, so that a command cannot be spelt out. The verb is named: whoever reads
# this on a page or in the log of a sweep typed another one.
_SAME_SETS = "with the same images and labels"
_ANOTHER = " or take a published encoder (docs/continue.md)"
Tone = Literal["good", "neutral", "warning"]
Interval = tuple[float, float]
Differ = Callable[[Metric, Metric], Interval | None]  # the 95 % interval of the first minus the second


@dataclass(frozen=True)
class Words:
    """What the numbers say, and what to do next.

    measured: on what, where that is not obvious. layer: which layer is the best, where several were measured.
    """

    verdict: str
    next: str
    tone: Tone = "neutral"
    measured: str = ""
    layer: str = ""


@dataclass(frozen=True)
class Baseline:
    """A number of other features; `order` is 1 where the trained ones are clearly better, -1 where worse, else 0."""

    metric: Metric
    order: int


def independent(one: float, own: Interval | None, other: float, its: Interval | None) -> Interval | None:
    """The interval of one minus other, each with its own; of two samples that have nothing in common."""
    if own is None or its is None:
        return None
    below, above = math.hypot(one - own[0], its[1] - other), math.hypot(own[1] - one, other - its[0])
    return one - other - below, one - other + above


def _unpaired(one: Metric, other: Metric) -> Interval | None:
    return independent(one.value, one.interval, other.value, other.interval)


def in_words(
    metrics: Sequence[Metric],
    run: str = "RUN",
    known: Sequence[Metric] = (),
    verb: str = "pretrain",
    differ: Differ = _unpaired,
) -> Words | None:
    """Of the trained features against their baselines; None where neither was measured.

    known: what the run holds from before, among which baselines may be. verb: which verb trained the run; empty where
    none did. differ: `reports.gains.paired_interval` pairs two numbers over their images; it needs torch, which is
    not here.
    """
    plain, main = _plain(metrics), spoken_of(metrics)
    rank = _rank(plain, main)
    if rank is not None and (words := collapsed(rank, verb, run)) is not None:
        return words
    if main is None:
        return None if rank is None else Words(_without_labels(rank), _label_advice(rank), "neutral")
    if seen := no_test(main):
        verdict = f"{number(main)} is not a test: {seen}."
        return Words(verdict, "Give --test images that are in neither training set.", "warning")
    held = [*known, *plain]
    others = {name: _of(held, main, name) for name in BASELINES}
    compared = {
        name: Baseline(other, _order(main, other, differ)) for name, other in others.items() if other is not None
    }
    scanned = any("scan" in m.protocol and _of_one_evaluation(m, main) for m in [*known, *metrics])
    layers = "" if scanned else f" Another layer may be better: echoless evaluate {run} --layers all, {_SAME_SETS}."
    aside = _by_neighbours(held, main, compared, differ)
    return _against(main, compared, rank, run, Advice(layers, _training(verb, run)), aside)


def _training(verb: str, run: str) -> str:
    """How the features may become better, as a sentence without its end."""
    if verb in _LONGER:
        return f"Train longer ({_LONGER[verb]}){_ANOTHER if verb == 'pretrain' else ''}"
    if run.startswith("timm:"):  # which --init does not take
        return "Train an encoder on your images (echoless pretrain DATA --out RUN)"
    return f"Train it on your images (echoless pretrain DATA --init {shlex.quote(run)} --out RUN)"


def tuned_in_words(
    tuned: Metric, frozen: Sequence[Metric], measure: str, out: str = "TUNED", differ: Differ = _unpaired
) -> Words:
    """Of a fine-tuned classifier against chance, and against the frozen features where those were measured alike.

    frozen: what is known of the weights that it started from. measure: the command that measures them on the same
    images.
    """
    if seen := no_test(tuned):
        verdict = f"{number(tuned)} is not a test: {seen}."
        return Words(verdict, "Give --test images that were not used for training.", "warning")
    what, alone = _independent(tuned)
    title = f"{tuned.info.title} is {number(tuned)}"
    if alone < FEWEST:
        return Words(f"{title} on {counted(alone, what)}: too few to compare with anything.", "Label more test images.")
    same = spoken_of([metric for metric in frozen if on_same_images(metric, tuned)])
    probe = None if same is None else Baseline(same, _order(tuned, same, differ))
    guessed, chance = _no_better_than_chance(tuned), tuned.protocol.get("chance")
    above = f"it is clearly above the largest class of the test images ({100 * (chance or 0):.2f} %)"
    said = [guessed or above] if chance is not None else []
    if probe is None:
        said.append("the frozen features were not measured on these images")
    else:
        said.append(_compared(tuned, f"{probe.metric.info.title.lower()} of the frozen features", probe))
    verdict = f"{title}: {joined(said)}."
    longer = f"Train longer ({_LONGER['finetune']}) or label more images."
    compare = f"Measure the frozen features on the same images: {measure}"
    if probe is None:
        return Words(verdict, f"{longer} {compare}" if guessed else compare, "warning" if guessed else "neutral")
    if guessed or probe.order < 0:
        return Words(verdict, longer, "warning")
    if probe.order == 0:
        return Words(verdict, longer)
    return Words(verdict, f"Use it: echoless embed {out} DATA --out features.parquet.", "good")


def _no_better_than_chance(metric: Metric) -> str:
    """A clause where its interval holds the share of the largest class; else nothing."""
    chance = metric.protocol.get("chance")
    if chance is None or (metric.interval or (metric.value,))[0] > chance:
        return ""
    order = "is below" if _is_below_chance(metric) else "is not clearly better than"
    return f"it {order} always naming the largest class of the test images ({100 * chance:.2f} %)"


def _plain(metrics: Sequence[Metric]) -> list[Metric]:
    """No scans; those of the newest weights last: of the end after any checkpoint."""
    plain = [metric for metric in metrics if not {"scan", "step"} & set(metric.protocol)]
    return sorted(plain, key=lambda metric: metric.protocol.get("checkpoint", math.inf))


def is_spoken_of(metric: Metric) -> bool:
    """Whether it is an accuracy of the trained features, and no value of a scan."""
    trained = metric.protocol.get("features", "trained") == "trained"
    return metric.metric in SPOKEN_OF and trained and not {"scan", "step"} & set(metric.protocol)


def spoken_of(metrics: Sequence[Metric]) -> Metric | None:
    """An accuracy of the trained features: of the strongest evaluation, where possible not of overlapping sets."""
    (honest,) = unseen([[metric for metric in _plain(metrics) if is_spoken_of(metric)]])
    main = strongest(honest)
    if main is None:
        return None
    found = strongest_of_each(metric for metric in honest if on_same_images(metric, main))
    return next(found[name] for name in SPOKEN_OF if name in found)


def collapsed(rank: Metric, verb: str = "pretrain", run: str = "RUN") -> Words | None:
    """Where RankMe says that nearly all images look the same; None otherwise, and of too few images to tell."""
    if rank.value >= LOWEST_RANK or rank.n < _FEWEST:
        return None
    if "checkpoint" in rank.protocol:
        step = rank.protocol["checkpoint"]
        verdict = f"RankMe is {rank.value:.3g} at step {step}: nearly all images still look the same."
        return Words(verdict, "That is usual early in training: continue the run with --resume, then evaluate again.")
    verdict = f"The features collapsed: RankMe is {rank.value:.3g}, so nearly all images look the same to the encoder."
    if verb not in _LONGER:
        return Words(verdict, f"Check that these are trained weights. {_training(verb, run)}.", "warning")
    alpha = "" if verb == "finetune" else "a larger --alpha-min (1 is a standard residual network) or "
    again = f"After a few hundred steps that is usual: train longer. After a long run, try {alpha}a lower --base-lr."
    return Words(verdict, again, "warning")


def _rank(metrics: Sequence[Metric], main: Metric | None) -> Metric | None:
    """RankMe of the trained features, on the images of the accuracy that is spoken of."""
    ranks = [m for m in metrics if m.metric == "rankme" and m.protocol.get("features", "trained") == "trained"]
    return strongest([m for m in ranks if main is None or on_same_images(m, main)])


def _label_advice(rank: Metric) -> str:
    """What to give where no accuracy was measured, for lack of labels."""
    if "test" in rank.protocol:
        return "Accuracies need labels of both sets: --labels FILE.csv for --train, --test-labels FILE.csv for --test."
    return "Without labels no accuracy can be measured; a few hundred in --labels FILE.csv are enough."


@dataclass(frozen=True)
class Advice:
    """layers: to measure all of them; empty where that was done. training: how it is trained further."""

    layers: str
    training: str


def _against(
    main: Metric, others: dict[str, Baseline], rank: Metric | None, run: str, advice: Advice, aside: str
) -> Words:
    """aside: what kNN says otherwise."""
    layers = advice.layers
    what, alone = _independent(main)
    if alone < FEWEST:
        verdict = f"{main.info.title} of the trained features is {number(main)} on {counted(alone, what)}"
        return Words(f"{verdict}: too few to compare with anything.", "Label more images.", "neutral")
    said = [_compared(main, name, other) for name, other in others.items()]
    below = _is_below_chance(main)
    if guessed := _no_better_than_chance(main):
        said.append(guessed)
    compared = joined(said) or "no baseline was measured"
    at = f" at step {main.protocol['checkpoint']}" if "checkpoint" in main.protocol else ""
    verdict = f"{main.info.title} of the trained features{at} is {number(main)}: {compared}."
    healthy = aside + (f" {_healthy(rank)}" if rank is not None else "")
    if easy := _too_easy(others, main.protocol.get("chance")):
        apart = "in both sets" if "test" in main.protocol else "in different folds"
        why = (
            f"This test is too easy to tell encoders apart ({easy}: nearly perfect): near-identical images, such as "
            f"neighbouring frames, lie {apart}, or the labels show in the pixels."
        )
        more = "Measure on images of other scenes, patients or files: --test DATA."
        return Words(f"{verdict}{healthy} {why}", more, "warning")
    order = [other.order for other in others.values()]
    if "checkpoint" in main.protocol and (guessed or (order and min(order) <= 0)):
        more = "The run has not ended: continue it with --resume, then evaluate again."
        return Words(verdict + healthy, more, "warning" if order and min(order) < 0 else "neutral")
    if below:
        more = "Label more images, or give --test: folds of few images leave some classes too few to learn from."
        return Words(verdict + healthy, more, "warning")
    if order and min(order) < 0:
        more = f"{advice.training}.{layers}"
        return Words(verdict + healthy, more, "warning")
    if guessed or (order and min(order) == 0):
        more = f"{advice.training} or label more images.{layers}"
        return Words(verdict + healthy, more, "neutral")
    if not order:
        more = f"Compare them with raw pixels: echoless evaluate {run} --baselines, {_SAME_SETS}."
        return Words(verdict + healthy, more, "neutral")
    more = f"Use them: echoless embed {run} DATA --out features.parquet.{layers}"
    return Words(verdict + healthy, more, "good")


def _is_below_chance(main: Metric) -> bool:
    """Clearly, and in folds: the class of what is predicted is then rarer among what is learned from."""
    chance = main.protocol.get("chance")
    return chance is not None and "folds" in main.protocol and main.interval is not None and main.interval[1] < chance


def _too_easy(others: dict[str, Baseline], chance: float | None) -> str:
    """Which baselines are nearly perfect, although they learned nothing; beyond what a large class alone explains."""
    found = [
        name
        for name, other in others.items()
        if other.metric.value >= EASY and (other.metric.interval or (other.metric.value,))[0] > (chance or 0)
    ]
    return joined(found)


def _independent(metric: Metric) -> tuple[str, int]:
    """What it was measured on, and how many: tiles of one file and copies of one image are one."""
    for key, what in (("files", "file"), ("distinct", "image")):
        if isinstance(count := metric.protocol.get(key), int):  # a file of results may hold anything
            return what, count
    return "image", metric.n


def _healthy(rank: Metric, which: str = "They") -> str:
    if rank.n < _FEWEST:
        return f"{rank.n} images are too few to say whether the features collapsed."
    few = f"which is close to a collapse (below {LOWEST_RANK:g})" if rank.value < FEW else "so they have not collapsed"
    return f"{which} use about {rank.value:.3g} directions (RankMe of {rank.n:,} images), {few}."


def _without_labels(rank: Metric) -> str:
    healthy = _healthy(rank, "The trained features")
    return healthy if rank.n < _FEWEST else f"{healthy} How good they are, labels alone can tell."


def _of(metrics: Sequence[Metric], main: Metric, features: str) -> Metric | None:
    """The same measurement, on the same images and labels, of other features."""

    def measured(metric: Metric) -> dict[str, Any]:
        return {key: value for key, value in metric.protocol.items() if key not in _OF_THE_FEATURES}

    same = [m for m in metrics if m.metric == main.metric and measured(m) == measured(main)]
    return next((metric for metric in reversed(same) if metric.protocol.get("features") == features), None)


def _order(one: Metric, other: Metric, differ: Differ) -> int:
    """1 where it is clearly higher, -1 where it is clearly lower, else 0."""
    low, high = differ(one, other) or (one.value - other.value,) * 2
    return 1 if low > 0 else -1 if high < 0 else 0


def _beyond(one: Metric, other: Metric) -> int:
    """The same of intervals that do not overlap, which is more than a difference needs: for marks in a table."""
    low, high = one.interval or (one.value, one.value)
    below, above = other.interval or (other.value, other.value)
    return 1 if low > above else -1 if high < below else 0


def _compared(one: Metric, name: str, other: Baseline) -> str:
    by = f" by {100 * abs(one.value - other.metric.value):.1f} points" if other.order else ""
    return f"it {VERBS[other.order]} {name} ({number(other.metric)}){by}"


def _by_neighbours(metrics: Sequence[Metric], main: Metric, others: dict[str, Baseline], differ: Differ) -> str:
    """A clause where kNN disagrees with the probe about raw pixels: each may miss what the other finds."""
    trained = [m for m in metrics if m.protocol.get("features", "trained") == "trained" and m.metric == "knn"]
    near = next((m for m in reversed(trained) if _of_one_evaluation(m, main)), None)
    raw = None if near is None or main is near else _of(metrics, near, "raw pixels")
    if near is None or raw is None or "raw pixels" not in others:
        return ""
    order = _order(near, raw, differ)
    if order == others["raw pixels"].order:
        return ""
    verb = {1: "they beat", 0: "they do not clearly differ from", -1: "they are worse than"}[order]
    return f" By kNN {verb} raw pixels ({number(near)} and {number(raw)})."


def _of_one_evaluation(one: Metric, other: Metric) -> bool:
    return on_same_images(one, other) and one.protocol.get("checkpoint") == other.protocol.get("checkpoint")


def best_of(metrics: Sequence[Metric]) -> list[bool]:
    """Which value is better than all others of its metric, beyond the intervals; never a rank."""
    marked = []
    for metric in metrics:
        rivals = [other for other in metrics if other.metric == metric.metric and other is not metric]
        sign = metric.info.better
        marked.append(bool(sign and rivals) and all(sign * _beyond(metric, other) > 0 for other in rivals))
    return marked
