"""Where do the trials of a sweep run? On an executor: it takes command lines, and says when they have ended.

An executor knows nothing of trials. What a trial did is in its ledger, on a disk that the trial and the sweep share.
"""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from echoless.config.checks import require
from echoless.config.options import SweepOptions
from echoless.sweeps.commands import Words


class Job(Protocol):
    """A command line that was submitted."""

    def ended(self) -> bool:
        """Whether it has, well or badly."""

    def reason(self) -> str:
        """What the engine says of a job that ended: "killed by SIGKILL", "TIMEOUT"; empty where it says nothing."""

    def cancel(self) -> None:
        """Take it from the queue; if it runs already, ask it to save and end."""


class Executor(Protocol):
    """`slots`: how many jobs may be submitted at a time. `seconds`: how often it is worth asking whether one ended."""

    slots: int
    seconds: float
    after_stop: str  # what became of the jobs when the sweep was stopped

    def submit(self, name: str, words: Words) -> Job:
        """Run the command line in the current folder, now or when there is room."""

    def close(self) -> None:
        """Nothing more will be submitted."""


def open_executor(options: SweepOptions, out: Path, trials: int) -> Executor:
    """The executor of --on; `trials` is how many there are. Whatever is missing for it is refused here."""
    if options.on == "slurm":
        from echoless.sweeps.executors.on_slurm import SlurmExecutor

        return SlurmExecutor(out / "slurm", settings_of("slurm_options", options.slurm_options), options.jobs or trials)
    if options.on == "ray":
        from echoless.sweeps.executors.on_ray import RayExecutor

        return RayExecutor(settings_of("ray_options", options.ray_options), options.jobs or trials)
    from echoless.sweeps.executors.on_local import LocalExecutor, side_by_side

    alone = options.launcher is not None  # it may use the whole machine for a run
    return LocalExecutor(options.jobs or (1 if alone else side_by_side(trials, options.device)), options.device)


def settings_of(name: str, words: tuple[str, ...]) -> dict[str, str]:
    """KEY=VALUE words as a mapping; dashes in a key count as underscores."""
    settings: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        require(bool(key.strip("- ") and equals), name, word, "KEY=VALUE")
        settings[key.strip("- ").replace("-", "_")] = value
    return settings
