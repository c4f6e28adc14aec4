"""What does the first card of a page say of a run? One verdict in words, and the next command.

What was measured decides it; before that, how training went; before that, whether it goes on.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from echoless.config.best_layer import best_cell, best_layer
from echoless.config.counts import counted
from echoless.config.headline import RULE, comparable, evaluations, most_shared, sets_of
from echoless.config.metrics import Metric, describe, on_same_images, without_fingerprints
from echoless.config.training import trained_by
from echoless.config.words import SPOKEN_OF, Words, in_words, is_spoken_of, spoken_of
from echoless.reports.collect import RunData, printable_path
from echoless.reports.compare import flatten
from echoless.reports.facts import is_killed
from echoless.reports.gains import paired_interval
from echoless.reports.verdicts import TOO_SHORT, Verdict


def summarise(run: RunData, verdicts: Sequence[Verdict], beside: Sequence[RunData] = ()) -> Words:
    """The verdict on a run, with the next step. Beside other runs it is of sets that they share, and names them."""
    name, results = _as_typed(run), run.results
    if len(beside) > 1:
        results = _on_shared_sets(run, beside)
    measured_on = _measured_on(spoken_of(results), _others(run), beside)
    verb, known = trained_by(run.config.get("recipe")), _raw_pixels_of_others(run, beside)
    words = in_words(results, name, known, verb, paired_interval)
    if words is not None:
        words = replace(words, measured=measured_on, layer=_best_layer(results))
    if run.steps is None and not run.lines:
        return words or Words("Nothing has been measured yet.", f"echoless evaluate {name}")
    if not run.complete:
        return _unfinished(run)
    warned = [f"{verdict.quantity}: {verdict.word}" for verdict in verdicts if verdict.tone == "warning"]
    if words is not None:
        note = f" Warnings from training: {'; '.join(warned)}." if warned else ""
        return replace(words, verdict=words.verdict + note)
    missing = "accuracy has" if run.results else "features have"
    how = f", with warnings ({'; '.join(warned)})" if warned else _how_it_went(verdicts)
    text = f"Training is complete{how}. Its {missing} not been measured."
    return Words(text, f"echoless evaluate {name}", "warning" if warned else "good")


def _on_shared_sets(run: RunData, beside: Sequence[RunData]) -> list[Metric]:
    """Its numbers on the images and labels on which most of the runs were measured; all where it has none there."""
    spoken = [[m for m in each.results if comparable(m) and m.metric in SPOKEN_OF] for each in beside]
    common = most_shared(spoken)
    shared = [] if common is None else [metric for metric in run.results if on_same_images(metric, common)]
    return shared if spoken_of(shared) is not None else run.results


def _raw_pixels_of_others(run: RunData, beside: Sequence[RunData]) -> list[Metric]:
    """Those of runs that are given the same pixels: a sweep measures them once."""
    alike = [other for other in beside if other is not run and _pixels(other) == _pixels(run)]
    return [m for other in alike for m in other.results if m.protocol.get("features") == "raw pixels"]


def _best_layer(results: Sequence[Metric]) -> str:
    """On the images of the accuracy that is spoken of; where those were not scanned, on others, which are named."""
    main = spoken_of(results)
    same = [metric for metric in results if main is not None and on_same_images(metric, main)]
    if (said := best_layer(same, paired_interval)) or (best := best_cell(results)) is None:
        return said
    sets = describe(without_fingerprints(sets_of(best)))
    return f"{best_layer(results, paired_interval)} This was measured with {sets}."


def _pixels(run: RunData) -> dict[str, Any]:
    """The settings that decide what an image is to the encoder, from which raw pixels are made."""
    decisive = ("image_size", "channels", "mean", "std", "latent")
    return {name: value for name, value in flatten(run.config).items() if name.split(".")[-1] in decisive}


def _others(run: RunData) -> int:
    """How many more evaluations have an accuracy of the trained features, those of overlapping sets included."""
    return len(evaluations(metric for metric in run.results if is_spoken_of(metric))) - 1


def _measured_on(main: Metric | None, others: int, beside: Sequence[RunData]) -> str:
    """Without it, the numbers of two cards look comparable, and the only ones that a run has."""
    sets = {} if main is None else without_fingerprints(sets_of(main))
    if main is None or (others < 1 and (len(beside) < 2 or not sets)):
        return ""
    if others < 1:
        return f"Measured with {describe(sets)}."
    shared = "images that most of these runs share, then " if len(beside) > 1 else ""
    return (
        f"Measured with {describe(sets | {'n': main.n})}. The run has {others + 1} evaluations, listed under "
        f"“All numbers”; this one comes first by the rule: {shared}{RULE}."
    )


def _how_it_went(verdicts: Sequence[Verdict]) -> str:
    loss = next((verdict.word for verdict in verdicts if verdict.quantity == "loss"), "")
    if loss == TOO_SHORT:
        return " and was too short to judge"
    falling = ", and the loss was still falling: a longer run may be better" if loss == "still improving" else ""
    return f" and was stable{falling}"


def _as_typed(run: RunData) -> str:
    """The run as a command names it: by its path, quoted where a shell needs it."""
    return shlex.quote(printable_path(run.path))


def _unfinished(run: RunData) -> Words:
    done = f"{run.steps_done} of {run.steps} steps" if run.steps else counted(run.steps_done, "step")
    again = "the same command with --resume continues it"
    if is_killed(run):
        where = (
            "from the last checkpoint" if run.saved_step else "from the start, because it had saved no checkpoint yet"
        )
        return Words(f"Training was killed after {done}.", f"{again}, {where}.", "warning")
    if run.alive is False:
        return Words(
            f"Training was stopped after {done}.", f"{again}; echoless evaluate {_as_typed(run)} measures it as it is."
        )
    return Words(f"Training has done {done}.", f"echoless evaluate {_as_typed(run)} measures the newest checkpoint.")
