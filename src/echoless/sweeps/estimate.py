"""How long will a sweep take? Estimated from finished trials, or from the first steps of the largest one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from echoless.errors import EcholessError
from echoless.runs import RunFolder
from echoless.runs.about import sentences, session_count, speed_of
from echoless.runtime import StopRequest, duration
from echoless.sweeps.executors.on_local import LocalExecutor
from echoless.sweeps.experiment import Trial
from echoless.sweeps.ledger import Ledger, is_done
from echoless.sweeps.starting import PLAIN, Starting
from echoless.sweeps.trials import run_command


@dataclass(frozen=True)
class TimeEstimate:
    """Seconds per unit of a trial's cost when `jobs` trials share the machine, and the origin of the estimate."""

    seconds: float
    origin: str
    jobs: int = 1

    def of(self, trials: Sequence[Trial]) -> str:
        return duration(self.seconds * sum(trial.cost for trial in trials) / min(self.jobs, len(trials)))


def estimate_from_finished(trials: Sequence[Trial], out: Path, jobs: int = 1) -> TimeEstimate | None:
    """From the time of finished trials, evaluation included."""
    seconds, cost, count = 0.0, 0.0, 0
    for trial in trials:
        if is_done(out, trial):
            seconds += sum(entry.seconds for entry in Ledger(out, trial).finished)
            cost, count = cost + trial.cost, count + 1
    return TimeEstimate(seconds / cost, f"from {count} that are done", jobs) if count and seconds else None


def estimate_from_first_steps(
    trials: Sequence[Trial],
    out: Path,
    stop: StopRequest,
    say: Callable[[str], None],
    executor: LocalExecutor,
    starting: Starting = PLAIN,
) -> TimeEstimate | None:
    """Start the largest trial and stop it once its speed is known. Nothing is lost: it is resumed later."""
    largest = max(trials, key=lambda trial: trial.cost)
    ledger, run = Ledger(out, largest), RunFolder(out / largest.name)
    if ledger.finished:
        return None
    say(f"measuring the speed on the first steps of {largest.name} ...")
    ledger.begin(largest.commands[0])
    earlier = session_count(_read_about(run))

    def images_per_second() -> float | None:
        about = _read_about(run)
        return speed_of(about) if session_count(about) > earlier else None

    training = largest.commands_in(out)[0]
    run_command(
        training,
        ledger.log,
        stop,
        until=lambda: images_per_second() is not None,
        starting=starting,
        environment=executor.places[0].environment,
    )
    speed = images_per_second()
    if not speed:
        return None
    if model := sentences(_read_about(run)).get("model"):  # what `auto` has chosen, before hours go into it
        say(f"its model: {model}")
    config = run.read_config()
    seconds = config["steps"] * config["batch_size"] / speed
    origin = "training alone, from a few steps of the largest; measuring comes on top"
    return TimeEstimate(seconds / largest.cost, origin, executor.slots)


def _read_about(run: RunFolder) -> dict[str, object]:
    """Empty if the run has not started or its file is damaged: then there is no estimate."""
    try:
        return run.read_about()
    except EcholessError:
        return {}
