"""How do trials run on Slurm? As jobs of submitit, one command line each; nothing of ours is pickled.

OUT/slurm/jobs.json says which job runs which trial. If the sweep itself is killed, its jobs go on; the same command
then waits for them instead of submitting others. Ctrl-C cancels them: Slurm sends SIGTERM, and they save and end.
"""

from __future__ import annotations

import shutil
from functools import cached_property
from pathlib import Path
from typing import Any

from echoless.config.extras import install_command
from echoless.errors import ConfigError, RunError
from echoless.storage import read_json_object, write_json
from echoless.sweeps.commands import Words

JOBS = "jobs.json"
SIGNAL = "TERM@120"  # seconds before the time limit: a run saves upon SIGTERM
_ALIVE = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "SUSPENDED", "REQUEUED", "REQUEUE_HOLD", "RESIZING")
_FOR_EVER = 60 * 24 * 365  # minutes; submitit's own limit for jobs on this machine is two


class SlurmExecutor:
    """`settings`: options of sbatch (partition, time, gres, ...). `cluster=local` runs the jobs on this machine by
    submitit's local executor, to try everything but the queue."""

    after_stop = "its jobs were cancelled and save what they did"

    def __init__(self, folder: Path, settings: dict[str, str], jobs: int) -> None:
        try:
            import submitit
        except ImportError:
            raise ConfigError(f"--on slurm needs submitit: {install_command('cluster')}") from None
        self.slots, self._folder, self._submitit = jobs, folder, submitit
        local = settings.get("cluster") == "local"
        self.seconds = 0.5 if local else 5.0
        if not local and shutil.which("sbatch") is None:
            raise ConfigError(
                "on is 'slurm', but there is no sbatch on this machine; run it where jobs are submitted, or try "
                "--slurm-options cluster=local"
            )
        self._kind: Any = submitit.LocalExecutor if local else submitit.SlurmExecutor
        self._parameters = _local(settings) if local else {"additional_parameters": _sbatch(settings)}

    @cached_property
    def _executor(self) -> Any:
        """It writes into its folder, which is the sweep's when the first job is submitted."""
        self._folder.mkdir(parents=True, exist_ok=True)
        executor = self._kind(self._folder)
        executor.update_parameters(**self._parameters)
        return executor

    @cached_property
    def _ids(self) -> dict[str, str]:
        """Trial -> the job that was submitted last for it."""
        return dict(read_json_object(self._folder / JOBS)) if (self._folder / JOBS).is_file() else {}

    def submit(self, name: str, words: Words) -> SlurmJob:
        """Unless a job that an earlier sweep submitted for it is still queued or running."""
        if name in self._ids:
            earlier = SlurmJob(self._executor.job_class(self._folder, self._ids[name]))
            if earlier.is_alive():
                return earlier
        command = self._submitit.helpers.CommandFunction(list(words), cwd=Path.cwd())
        try:
            job = self._executor.submit(command)
        except (RuntimeError, OSError) as error:  # what sbatch said, or that it is gone
            raise RunError(f"Slurm refused the job of {name}: {_last_line(error)}") from None
        self._ids[name] = job.job_id
        write_json(self._folder / JOBS, self._ids)
        return SlurmJob(job)

    def close(self) -> None:
        """Jobs do not depend on this process."""


class SlurmJob:
    def __init__(self, job: Any) -> None:
        self._job = job

    def ended(self) -> bool:
        return bool(self._job.done())

    def is_alive(self) -> bool:
        """A job that Slurm has forgotten is not."""
        self._job.get_info(mode="force")
        return self._job.state.partition(" ")[0] in _ALIVE

    def reason(self) -> str:
        return f"job {self._job.job_id}: {self._job.state}"

    def cancel(self) -> None:
        self._job.cancel(check=False)


def _sbatch(settings: dict[str, str]) -> dict[str, Any]:
    """Options of sbatch as they are; a flag without a value is given as KEY=true."""
    given = {key: True if value == "true" else value for key, value in settings.items()}
    return {"job_name": "echoless", "signal": SIGNAL, **given}


def _local(settings: dict[str, str]) -> dict[str, Any]:
    unknown = sorted(set(settings) - {"cluster", "gpus_per_node"})
    if unknown:
        raise ConfigError(f"slurm_options has {unknown[0]!r}; allowed with cluster=local: gpus_per_node")
    return {"timeout_min": _FOR_EVER, "gpus_per_node": int(settings.get("gpus_per_node", 0))}


def _last_line(error: Exception) -> str:
    said = str(error) or type(error).__name__
    return said.strip().splitlines()[-1]
