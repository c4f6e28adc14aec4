"""What does an evaluation end with? What its numbers say in plain words, beside what the run holds from before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from echoless.config.evaluated import NEXT
from echoless.config.metrics import Metric
from echoless.config.training import trained_by
from echoless.config.words import in_words
from echoless.errors import EcholessError
from echoless.reports.collect import RunData, collect
from echoless.reports.gains import paired_interval
from echoless.runs.around import run_of
from echoless.storage import read_json_object


def verdict_of(metrics: Sequence[Metric], run: Path) -> tuple[str, ...]:
    """The verdict and the next step; nothing where neither trained features nor their ranks were measured."""
    words = in_words(metrics, str(run), known_of(run).results, trained_where(run), paired_interval)
    return () if words is None else (words.verdict, f"{NEXT}{words.next}")


def known_of(run: Path) -> RunData:
    """What a run holds from before; nothing of what is no run of ours."""
    try:
        return collect(run)
    except EcholessError:
        return RunData(path=run, name=run.name)


def trained_where(weights: Path) -> str:
    """The verb that trained a run, or an encoder, a checkpoint or a snapshot in one; empty of any other weights."""
    with suppress(EcholessError):
        if "recipe" in (config := read_json_object(run_of(weights) / "config.json")):
            return trained_by(config["recipe"])
    return ""
