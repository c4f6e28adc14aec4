"""How do the trials of a sweep run on an executor? Submit, wait, collect; whatever was killed is submitted again.

A trial that is killed, or whose machine is lost, continues from its last checkpoint and ends with the same numbers. It
is given up when it was lost several times in a row without getting any further.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from echoless.runtime import StopRequest
from echoless.sweeps.executors import Executor, Job
from echoless.sweeps.experiment import Trial
from echoless.sweeps.ledger import Ledger, Outcome
from echoless.sweeps.progress import progress_of
from echoless.sweeps.starting import Starting

MOST_LOSSES = 3  # in a row, without progress
_SHOWN = 3  # running trials that are shown
Say = Callable[[str], None]
Watch = Callable[[Mapping[str, str]], None]


@dataclass
class _Attempt:
    trial: Trial
    job: Job
    progress: tuple[object, ...]  # when it was submitted
    losses: int = 0


def run_trials(
    trials: Sequence[Trial],
    out: Path,
    executor: Executor,
    stop: StopRequest,
    watch: Watch,
    say: Say,
    starting: Starting,
) -> Iterator[tuple[Trial, Outcome]]:
    """How each trial ended, in the order in which they do.

    `watch` is told how far a few running trials are. After a stop, running trials save and end; those that
    have not started count as stopped.
    """
    waiting, running = list(trials), list[_Attempt]()

    def submit(trial: Trial, losses: int = 0) -> None:
        Ledger(out, trial).plan()
        job = executor.submit(trial.name, starting.trial_arguments(out, trial.name))
        running.append(_Attempt(trial, job, _progress(out, trial), losses))

    try:
        while waiting or running:
            while waiting and len(running) < executor.slots and not stop.requested:
                submit(waiting.pop(0))
            if stop.requested:
                yield from _stopped(waiting, running, out, stop)
                return
            for attempt in [attempt for attempt in running if attempt.job.ended()]:
                running.remove(attempt)
                outcome = _outcome(attempt, out)
                if outcome.state == "stopped" and not stop.requested:
                    say(f"{attempt.trial.name} was lost ({outcome.text}) and is started again")
                    submit(attempt.trial, attempt.losses + 1)
                else:
                    yield attempt.trial, outcome
            watch({each.trial.name: progress_of(each.trial, out) for each in running[:_SHOWN]})
            _pause(executor.seconds, stop)
    except BaseException:
        for attempt in running:
            attempt.job.cancel()
        raise


def _stopped(
    waiting: Sequence[Trial], running: Sequence[_Attempt], out: Path, stop: StopRequest
) -> Iterator[tuple[Trial, Outcome]]:
    """Every job is asked to save and end; a second Ctrl-C does not wait for that."""
    for attempt in running:
        attempt.job.cancel()
    for attempt in running:
        while not attempt.job.ended():
            time.sleep(0.1)
        outcome = Ledger(out, attempt.trial).ended
        yield attempt.trial, outcome or Outcome("stopped", f"stopped by {stop.requested}")
    for trial in waiting:
        yield trial, Outcome("stopped")


def _outcome(attempt: _Attempt, out: Path) -> Outcome:
    """What the ledger says; "stopped" for a trial that was lost and is worth another attempt."""
    ended = Ledger(out, attempt.trial).ended
    if ended is not None and ended.state != "stopped":
        return ended
    why = (ended.text if ended else "") or attempt.job.reason() or "it ended without a word"
    if _progress(out, attempt.trial) != attempt.progress:
        attempt.losses = 0
    if attempt.losses + 1 >= MOST_LOSSES:
        return Outcome("failed", f"lost {MOST_LOSSES} times without progress, the last time: {why}")
    return Outcome("stopped", why)


def _progress(out: Path, trial: Trial) -> tuple[object, ...]:
    """What changes when a trial gets any further: finished commands, and the newest checkpoint."""
    latest = out / trial.name / "checkpoints" / "latest"
    return len(Ledger(out, trial).finished), latest.read_bytes() if latest.is_file() else b""


def _pause(seconds: float, stop: StopRequest) -> None:
    """A signal ends it."""
    end = time.monotonic() + seconds
    while not stop.requested and time.monotonic() < end:
        time.sleep(min(0.2, seconds))
