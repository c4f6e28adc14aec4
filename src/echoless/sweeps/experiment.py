"""What is an experiment? Trials that differ in a few settings, the quantities to compare, and the published values."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from echoless.config.checks import require
from echoless.config.metrics import Metric, info_of
from echoless.sweeps.commands import RUN, Words, in_folder

Reading = Callable[[Path], list[Metric]]  # a run folder -> numbers that no verb prints
# (experiment, numbers by trial, the sweep's folder) -> lines below the table; may draw into the folder
Conclusion = Callable[["Experiment", Mapping[str, Sequence[Metric]], Path], list[str]]


@dataclass(frozen=True, kw_only=True)
class Trial:
    """One row of an experiment: what is typed after `echoless`, training first, then everything that measures it.

    Every command must be repeatable: training resumes, evaluation replaces its earlier results.
    """

    name: str  # its folder in the sweep
    settings: Mapping[str, Any]  # what tells it from the others; `seed` among them
    commands: tuple[Words, ...]
    cost: float = 1.0  # of its training, relative to the other trials
    results: tuple[str, ...] = (RUN,)  # folders whose results.json belongs to it
    may_diverge: bool = False  # training that stops because it is not finite is an answer here, not a failure

    def __post_init__(self) -> None:
        good = re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,150}", self.name) is not None
        require(good, "trial", self.name, "a folder name of letters, digits and . _ + -")

    def commands_in(self, out: Path) -> tuple[Words, ...]:
        return tuple(tuple(in_folder(word, out / self.name) for word in words) for words in self.commands)

    def folders_in(self, out: Path) -> tuple[Path, ...]:
        return tuple(Path(in_folder(word, out / self.name)) for word in self.results)

    @property
    def group(self) -> tuple[tuple[str, Any], ...]:
        """Its settings without the seed: trials of one group are repetitions of each other."""
        return tuple((key, value) for key, value in self.settings.items() if key != "seed")


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """A column of the table: the records of results.json that it shows. Its unit is that of the metric."""

    metric: str
    title: str = ""  # where it is not the metric's own
    protocol: Mapping[str, Any] = field(default_factory=lambda: {"features": "trained"})  # what a record must say
    best: Literal["max", "min"] | None = None  # of several records; None: there is one

    @property
    def heading(self) -> str:
        return self.title or info_of(self.metric).heading

    def number(self, value: float, sign: str = "") -> str:
        """sign: "+" before a value that is not negative; a value that rounds to zero is not."""
        return f"{100 * value:{sign}z.1f}" if info_of(self.metric).is_share else f"{value:{sign}z.3g}"

    def belongs(self, metric: Metric) -> bool:
        same = all(metric.protocol.get(key) == value for key, value in self.protocol.items())
        return metric.metric == self.metric and same

    def choose(self, records: Sequence[Metric]) -> Metric:
        """Of several records that belong here the best, or the newest."""
        if self.best is None:
            return records[-1]
        return (max if self.best == "max" else min)(records, key=lambda metric: metric.value)


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published value, for the row whose columns equal `settings`."""

    metric: str
    value: float
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """`trials` in the order in which they run; `quantities` in the order of the table's columns."""

    name: str
    title: str
    trials: tuple[Trial, ...]
    quantities: tuple[Quantity, ...]
    published: tuple[Published, ...] = ()
    by: tuple[str, ...] = ()  # keys of a protocol that become columns too, such as "step"
    contrast: tuple[str, ...] = ("alpha_min", "effective")  # columns in which a row differs from its baseline
    correlate: tuple[str, str] | None = None  # two metrics whose correlation over runs is shown
    readings: tuple[Reading, ...] = ()
    conclusions: tuple[Conclusion, ...] = ()
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # why its numbers are no test

    def __post_init__(self) -> None:
        names = [trial.name for trial in self.trials]
        twice = sorted({name for name in names if names.count(name) > 1})
        require(not twice, "trials", twice[:3], "different names")


def trial_name(settings: Mapping[str, Any]) -> str:
    """`alpha_min-0.6_seed-0`, whatever the values are."""
    words = [re.sub(r"[^A-Za-z0-9._+-]+", "-", f"{key}-{value}") for key, value in settings.items()]
    return "_".join(word.strip("-") for word in words)
