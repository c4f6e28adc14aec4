"""How does `pretrain` fit a run into a time? It measures a few steps and fixes encoder, patch size and length.

The result is a choice of options, so that a run planned by time can be repeated exactly by giving them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from echoless.config import RunConfig
from echoless.config.facts import DataFacts, natural_size
from echoless.config.options import PretrainOptions
from echoless.config.training import BudgetConfig
from echoless.recipes.budget import LONGEST, Candidate, Choice, candidates_for, choose, images_in
from echoless.runtime import duration

Resolve = Callable[[PretrainOptions], RunConfig]
Measure = Callable[[RunConfig], float]  # images per second


@dataclass(frozen=True)
class Plan:
    """The options that were chosen, the budget to record, and sentences for the log."""

    options: PretrainOptions
    budget: BudgetConfig
    sentences: tuple[str, ...]


def make_plan(options: PretrainOptions, seconds: float, facts: DataFacts, resolve: Resolve, measure: Measure) -> Plan:
    """Choose encoder and patch size where the recipe is auto on a CPU, and the number of steps in any case."""
    if options.recipe in (None, "auto") and not facts.accelerated:
        return _choose(options, seconds, facts, resolve, measure)
    config = resolve(options)
    speed = measure(config)
    images = images_in(seconds, speed, facts)
    options = replace(options, max_steps=max(1, images // config.batch_size))
    return Plan(options, BudgetConfig(seconds=seconds, images_per_second=speed), (_length(images, speed, facts),))


def _choose(options: PretrainOptions, seconds: float, facts: DataFacts, resolve: Resolve, measure: Measure) -> Plan:
    size = options.image_size or (facts.height, facts.width)
    seen = replace(facts, height=size[0], width=size[-1])

    def with_candidate(candidate: Candidate) -> PretrainOptions:
        patch = options.patch_size or candidate.coarser * natural_size(seen)[1]
        return replace(options, recipe=candidate.recipe, patch_size=patch)

    candidates = candidates_for(seen, options.patch_size)
    choice = choose(seconds, facts, candidates, lambda candidate: measure(resolve(with_candidate(candidate))))
    chosen = with_candidate(choice.candidate)
    config = resolve(chosen)
    chosen = replace(chosen, max_steps=max(1, choice.images // config.batch_size))
    body = config.model.body
    exact = f"--recipe {chosen.recipe} --patch-size {chosen.patch_size} --max-steps {chosen.max_steps}"
    sentences = (
        f"plan: {duration(seconds)} for this run; {chosen.recipe}, encoder {body.width} x {body.blocks}, patch "
        f"{chosen.patch_size}; {_length(choice.images, choice.images_per_second, facts)}",
        _longer(choice, resolve(with_candidate(choice.larger)) if choice.larger else None),
        f"plan: to repeat this run without measuring, give {exact}",
    )
    return Plan(chosen, BudgetConfig(seconds=seconds, images_per_second=choice.images_per_second), sentences)


def _length(images: int, speed: float, facts: DataFacts) -> str:
    epochs, time = f"{images / facts.count:.3g} epochs", duration(images / speed)
    return f"{images:,} images ({epochs}) in {time} at {speed:.3g} images/s"


def _longer(choice: Choice, larger: RunConfig | None) -> str:
    """What more time would buy."""
    if larger is None:
        return f"plan: more time would buy more epochs, up to {LONGEST}, but no larger encoder"
    body: Any = larger.model.body
    return (
        f"plan: more time would buy more epochs, and from --time {_as_option(choice.larger_seconds)} on "
        f"{larger.recipe}, encoder {body.width} x {body.blocks}, patch {body.patch_size}"
    )


def _as_option(seconds: float) -> str:
    return f"{seconds / 3600:.2g}h" if seconds >= 5400 else f"{max(1, round(seconds / 60))}m"
