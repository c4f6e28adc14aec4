"""How do trials share this machine? Every job has a place of its own: one or more GPUs, and cores."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from echoless.runtime.machine import memory_bytes, usable_cores
from echoless.sweeps.commands import Words

GPUS, THREADS = "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS"
MEMORY_OF_A_RUN = 3 * 2**30  # bytes of this machine's memory for each of several runs


@dataclass(frozen=True)
class LocalPlace:
    """Where a job runs; None: wherever it likes."""

    gpus: tuple[str, ...] | None = None
    cores: tuple[int, ...] | None = None

    @property
    def environment(self) -> dict[str, str]:
        """A number of threads that the user has set stays."""
        found = {} if self.gpus is None else {GPUS: ",".join(self.gpus)}
        if self.cores is not None and THREADS not in os.environ:
            found[THREADS] = str(len(self.cores))
        return found


def side_by_side(trials: int, device: str) -> int:
    """How many run at a time where nobody says so: one after the other on an accelerator, one on each core of a CPU.

    Two runs with a thread each see more images than one with two (docs/performance.md). With OMP_NUM_THREADS=2, half as
    many run. The free memory of the moment does not count: threads decide the last bits of a result.
    """
    if device not in ("auto", "cpu"):
        return 1
    if device == "auto":
        from echoless.runtime.devices import choose_device

        if choose_device(device).type != "cpu":
            return 1
    asked = os.environ.get(THREADS, "1")
    cores = usable_cores() // (int(asked) if asked.isdigit() and asked != "0" else 1)
    memory = memory_bytes()[0]
    return max(1, min(trials, cores, trials if memory is None else memory // MEMORY_OF_A_RUN))


def places(jobs: int, gpus: Sequence[str], cores: Sequence[int]) -> list[LocalPlace]:
    """One place per job, with an equal share of what there is. If there are more jobs than GPUs or cores, several jobs
    share one. A single job has the whole machine."""
    if jobs == 1:
        return [LocalPlace()]
    return [LocalPlace(_share(gpus, jobs, job) or None, _share(cores, jobs, job) or None) for job in range(jobs)]


def _share(items: Sequence, jobs: int, job: int) -> tuple:
    each = len(items) // jobs
    if each:
        return tuple(items[job * each : (job + 1) * each])
    return (items[job % len(items)],) if items else ()


def visible_gpus(device: str) -> list[str]:
    """The GPUs to share; none for a CPU, nor where --device names one."""
    if device not in ("auto", "cuda"):
        return []
    import torch

    count = torch.cuda.device_count()
    named = [name.strip() for name in os.environ.get(GPUS, "").split(",") if name.strip()]
    return named[:count] if named else [str(number) for number in range(count)]


def usable_core_numbers() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(usable_cores()))


class LocalExecutor:
    seconds, after_stop = 0.5, "everything is saved"

    def __init__(self, jobs: int, device: str = "auto") -> None:
        self.slots = jobs
        gpus = visible_gpus(device) if jobs > 1 else []
        self.places = places(jobs, gpus, usable_core_numbers())
        self._jobs: list[LocalJob | None] = [None] * jobs

    def submit(self, name: str, words: Words) -> LocalJob:
        slot = next(number for number, job in enumerate(self._jobs) if job is None or job.ended())
        job = self._jobs[slot] = LocalJob(words, self.places[slot])
        return job

    def close(self) -> None:
        """Its jobs end with this process."""


class LocalJob:
    def __init__(self, words: Words, place: LocalPlace) -> None:
        """It says what it has to say in its log, and the terminal belongs to the sweep."""
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **place.environment},
            start_new_session=True,  # Ctrl-C reaches the sweep alone, which passes it on
        )
        if place.cores is not None and hasattr(os, "sched_setaffinity"):
            with suppress(OSError):  # it has ended already
                os.sched_setaffinity(self._process.pid, place.cores)

    def ended(self) -> bool:
        return self._process.poll() is not None

    def reason(self) -> str:
        code = self._process.poll()
        return "" if code is None or code >= 0 else f"killed by {signal.Signals(-code).name}"

    def cancel(self) -> None:
        self._process.send_signal(signal.SIGTERM)
