"""How does `pretrain` fit a run into a time? It measures a few steps and fixes encoder, patch size and length.

The result is a choice of options, so that a run planned by time can be repeated exactly by giving them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from echoless.config import RunConfig
from echoless.config.counts import counted, speed_in_words
from echoless.config.facts import DataFacts, natural_size
from echoless.config.options import PretrainOptions
from echoless.config.training import BudgetConfig
from echoless.recipes.budget import LONGEST, Candidate, Choice, candidates_for, choose, images_in, is_longest
from echoless.runtime import duration
from echoless.training.timing import Speed

Resolve = Callable[[PretrainOptions], RunConfig]
Measure = Callable[[RunConfig], Speed]

FEW = 10_000  # images, below which the plan says that a published encoder is the better start
BUSY = 0.5  # below this share of a core, the plan says that the machine has other work


@dataclass(frozen=True)
class Plan:
    """The options that were chosen, the budget to record, and sentences for the log."""

    options: PretrainOptions
    budget: BudgetConfig
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Time:
    """The seconds that a run may take, and those that are over: reading and measuring are part of it."""

    seconds: float
    spent: Callable[[], float] = lambda: 0.0  # the same in all processes


def make_plan(options: PretrainOptions, time: Time, facts: DataFacts, resolve: Resolve, measure: Measure) -> Plan:
    """Choose encoder and patch size where the recipe is auto on a CPU, and the number of steps in any case."""
    if _is_chosen(options, facts):
        return _choose(options, time, facts, resolve, measure)
    config = resolve(options)
    speed = measure(config)
    spent = time.spent()
    fitting = images_in(time.seconds, speed.images_per_second, facts, spent)
    options, length = _with_length(options, config, fitting, speed, facts)
    return Plan(options, _budget(time, speed), (f"plan: {_given(time, spent)}; {length}", *_busy(speed)))


def smallest(options: PretrainOptions, facts: DataFacts) -> PretrainOptions:
    """Of the runs that a plan may choose, the one that needs the least memory."""
    if not _is_chosen(options, facts):
        return options
    seen = _seen(options, facts)
    return _with_candidate(options, candidates_for(seen, options.patch_size)[0], seen)


def _is_chosen(options: PretrainOptions, facts: DataFacts) -> bool:
    """Whether the plan chooses the encoder too, and not the length alone."""
    return options.recipe in (None, "auto") and not facts.accelerated


def _seen(options: PretrainOptions, facts: DataFacts) -> DataFacts:
    """Of images of the size that was given."""
    size = options.image_size or (facts.height, facts.width)
    return replace(facts, height=size[0], width=size[-1])


def _with_candidate(options: PretrainOptions, candidate: Candidate, seen: DataFacts) -> PretrainOptions:
    patch = options.patch_size or candidate.coarser * natural_size(seen)[1]
    return replace(options, recipe=candidate.recipe, patch_size=patch)


def _choose(options: PretrainOptions, time: Time, facts: DataFacts, resolve: Resolve, measure: Measure) -> Plan:
    seen = _seen(options, facts)
    with_candidate = partial(_with_candidate, options, seen=seen)
    speeds: dict[Candidate, Speed] = {}

    def images_per_second(candidate: Candidate) -> float:
        speeds[candidate] = measure(resolve(with_candidate(candidate)))
        return speeds[candidate].images_per_second

    choice = choose(time.seconds, facts, candidates_for(seen, options.patch_size), images_per_second)
    speed, config = speeds[choice.candidate], resolve(with_candidate(choice.candidate))
    spent = time.spent()
    fitting = images_in(time.seconds, speed.images_per_second, facts, spent)
    chosen, length = _with_length(with_candidate(choice.candidate), config, fitting, speed, facts)
    body = config.model.body
    size_of = f"{chosen.recipe}, encoder {body.width} x {body.blocks}, patch {chosen.patch_size}"
    exact = f"--recipe {chosen.recipe} --patch-size {chosen.patch_size} --max-steps {chosen.max_steps}"
    sentences = (
        f"plan: {_given(time, spent)}; {size_of}; {length}",
        *_busy(speed),
        _longer(choice, resolve(with_candidate(choice.larger)) if choice.larger else None, is_longest(fitting, facts)),
        *_few(options, facts),
        f"plan: to repeat this run without measuring, give {exact}",
    )
    return Plan(chosen, _budget(time, speed), sentences)


def _few(options: PretrainOptions, facts: DataFacts) -> tuple[str, ...]:
    """Whoever wants features, and not an experiment, should hear it before the time is spent."""
    if facts.count >= FEW or options.init is not None:
        return ()
    return (
        f"plan: {counted(facts.count, 'image')} are few to train an encoder from nothing: of photographs, a published "
        "one probably has better features, as it is or continued with --init FOLDER (docs/continue.md)",
    )


def _with_length(
    options: PretrainOptions, config: RunConfig, fitting: int, speed: Speed, facts: DataFacts
) -> tuple[PretrainOptions, str]:
    """The options with the steps for so many images, at least one; and a clause on how long they take."""
    steps = max(1, fitting // config.batch_size)
    images = steps * config.batch_size
    takes, epochs = duration(images / speed.images_per_second), f"{images / facts.count:.3g} epochs"
    length = f"{images:,} images ({epochs}) in {takes} at {speed_in_words(speed.images_per_second)}"
    return replace(options, max_steps=steps), length


def _given(time: Time, spent: float) -> str:
    matters = spent > max(1.0, 0.05 * time.seconds)
    over = f", {duration(spent)} of which went into reading and measuring" if matters else ""
    return f"{duration(time.seconds)} for this run{over}"


def _budget(time: Time, speed: Speed) -> BudgetConfig:
    return BudgetConfig(seconds=time.seconds, images_per_second=speed.images_per_second)


def _busy(speed: Speed) -> tuple[str, ...]:
    """A plan made while others use the machine is too short once they have finished."""
    if speed.share >= BUSY:
        return ()
    alone = speed.images_per_second / max(speed.share, 1e-3)
    return (
        f"plan: this machine is busy with other programs: the measured steps had {100 * speed.share:.0f} % of a core; "
        f"alone, the run would see about {speed_in_words(alone)} and be planned accordingly",
    )


def _longer(choice: Choice, larger: RunConfig | None, longest: bool) -> str:
    """What more time would buy. longest: the run has as many epochs as are ever planned, and ends before its time."""
    if larger is None and longest:
        return (
            f"plan: {LONGEST} epochs are the most that is planned for a set of this size; more time would buy nothing"
        )
    if larger is None:
        return f"plan: more time would buy more epochs, up to {LONGEST}, but no larger encoder"
    body: Any = larger.model.body
    epochs = "" if longest else "more epochs, and "
    return (
        f"plan: more time would buy {epochs}{larger.recipe}, encoder {body.width} x {body.blocks}, patch "
        f"{body.patch_size}, from --time {_as_option(choice.larger_seconds)}"
    )


def _as_option(seconds: float) -> str:
    """Rounded up: less would not be enough, and could be the time of this run."""
    if seconds < 5400:
        return f"{math.ceil(seconds / 60)}m"
    return f"{math.ceil(seconds / 360) / 10 if seconds < 36000 else math.ceil(seconds / 3600):g}h"
