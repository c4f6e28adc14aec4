"""How do several trials of a sweep run at a time? Each in a thread that waits for its commands; cores are shared."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from pathlib import Path

from echoless.runtime import StopRequest
from echoless.runtime.machine import usable_cores
from echoless.sweeps.experiment import Trial
from echoless.sweeps.starting import Starting
from echoless.sweeps.trials import Outcome, run_trial

_LOOK_SECONDS = 0.5


def run_trials(
    trials: Sequence[Trial],
    out: Path,
    jobs: int,
    stop: StopRequest,
    watch: Callable[[Mapping[str, str]], None],
    starting: Starting | None = None,
) -> Iterator[tuple[Trial, Outcome]]:
    """`jobs` trials at a time; how each ended, in the order in which they do.

    `watch` is given the last output line of each running trial. After a stop, trials that have not started count as
    stopped.
    """
    last_words: dict[str, str] = {}
    threads = threads_each(jobs)

    def attempt(trial: Trial) -> Outcome:
        if stop.requested:
            return Outcome("stopped")
        try:
            tick = lambda said: last_words.update({trial.name: said})  # noqa: E731
            return run_trial(trial, out, stop, tick, threads, starting)
        finally:
            last_words.pop(trial.name, None)

    with ThreadPoolExecutor(jobs) as pool:
        waiting = {pool.submit(attempt, trial): trial for trial in trials}
        try:
            while waiting:
                ended, _ = wait(waiting, timeout=_LOOK_SECONDS, return_when=FIRST_COMPLETED)
                watch(dict(last_words))
                for future in ended:
                    yield waiting.pop(future), future.result()
        except BaseException:
            # The pool waits for its threads: without this an error would be told after hours.
            stop.requested = stop.requested or "an error"
            raise


def threads_each(jobs: int) -> int | None:
    """Threads per job: an equal share of the cores; None for a single job, which uses its default."""
    return None if jobs == 1 else max(1, usable_cores() // jobs)
