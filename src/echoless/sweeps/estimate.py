"""How long will a sweep take? Asked of trials that are done, or of a few real steps of the largest one to come."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from echoless.runtime import StopRequest, duration
from echoless.storage import read_json_object
from echoless.sweeps.experiment import Trial
from echoless.sweeps.trials import Ledger, is_done, run_command

_SPEED = re.compile(rb"to go at ([0-9.e+]+) images/s")  # what training says after its first steps


@dataclass(frozen=True)
class Estimate:
    """Seconds of one unit of a trial's cost where `jobs` trials share the machine, and where that is known from."""

    seconds: float
    source: str
    jobs: int = 1

    def of(self, trials: Sequence[Trial]) -> str:
        return duration(self.seconds * sum(trial.cost for trial in trials) / min(self.jobs, len(trials)))


def from_done(trials: Sequence[Trial], out: Path, jobs: int = 1) -> Estimate | None:
    """From what finished trials took, measuring included."""
    took, cost, count = 0.0, 0.0, 0
    for trial in trials:
        if is_done(out, trial):
            took += sum(entry.seconds for entry in Ledger(out, trial).finished)
            cost, count = cost + trial.cost, count + 1
    return Estimate(took / cost, f"from {count} that are done", jobs) if count and took else None


def from_first_steps(
    trials: Sequence[Trial],
    out: Path,
    stop: StopRequest,
    say: Callable[[str], None],
    jobs: int = 1,
    threads: int | None = None,
) -> Estimate | None:
    """Start the largest trial, stop it when it knows its speed. Nothing is lost: it continues when its turn comes."""
    largest = max(trials, key=lambda trial: trial.cost)
    ledger = Ledger(out, largest)
    if ledger.finished:
        return None
    say(f"measuring the speed on the first steps of {largest.name} ...")
    ledger.begin(largest.commands[0])
    begin = ledger.log.stat().st_size if ledger.log.exists() else 0

    def speed() -> float | None:
        with ledger.log.open("rb") as file:
            file.seek(begin)
            found = _SPEED.findall(file.read())
        return float(found[-1]) if found else None

    training = largest.commands_in(out)[0]
    run_command(training, ledger.log, stop, lambda _: None, until=lambda: speed() is not None, threads=threads)
    images_per_second = speed()
    if not images_per_second:
        return None
    config = read_json_object(out / largest.name / "config.json")
    seconds = config["steps"] * config["batch_size"] / images_per_second
    source = "training alone, from a few steps of the largest; measuring comes on top"
    return Estimate(seconds / largest.cost, source, jobs)
