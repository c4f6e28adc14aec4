"""How do trials run on Ray? As tasks that start one command line each, on an existing cluster or a local one.

Ray's tasks end with the process that submitted them: if the sweep is stopped or killed, so are its trials, and the same
command continues them. Upon Ctrl-C they save first.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echoless.config.extras import install_command
from echoless.errors import ConfigError
from echoless.sweeps.commands import Words

# What decides how a run rounds and which code it runs, beside ECHOLESS_*; nodes of a cluster do not have it.
_PASSED = ("PYTHONPATH", "OMP_NUM_THREADS")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_ANSWER_SECONDS = 5.0
_OPTIONS = {"num_cpus": float, "num_gpus": float, "memory": float, "accelerator_type": str}


def run_command_line(words: list[str], folder: str, environment: dict[str, str]) -> int:
    """What a task does: run the command line, and pass a cancellation on as SIGTERM, upon which a run saves."""
    child = subprocess.Popen(words, cwd=folder, env={**os.environ, **environment}, stdin=subprocess.DEVNULL)
    try:
        while True:
            try:
                return child.wait(0.5)  # a wait without a limit would not notice the cancellation
            except subprocess.TimeoutExpired:
                continue
    except KeyboardInterrupt:
        child.terminate()
        child.wait()
        raise


class RayExecutor:
    """`settings`: what a trial needs of the cluster (num_cpus, num_gpus, memory, accelerator_type); by default a GPU if
    the cluster has any, and one CPU."""

    seconds, after_stop = 0.5, "its tasks were cancelled after they saved what they did"

    def __init__(self, settings: dict[str, str], jobs: int) -> None:
        needs = _needs(settings)
        self.slots, self._started, self._ray = jobs, *connect()
        available = self._ray.cluster_resources()
        needs = {"num_gpus": 1.0 if available.get("GPU") else 0.0, "num_cpus": 1.0} | needs
        for name, resource in (("num_gpus", "GPU"), ("num_cpus", "CPU")):
            if needs[name] > (has := available.get(resource, 0.0)):
                self.close()
                raise ConfigError(f"a run needs {name}={needs[name]:g}, but the Ray cluster has {has:g} in all")
        # Lost tasks are started again by the sweep, which knows whether they got any further.
        self._task: Any = self._ray.remote(max_retries=0, **needs)(run_command_line)

    def submit(self, name: str, words: Words) -> RayJob:
        ours = {key: value for key, value in os.environ.items() if key.startswith("ECHOLESS_") or key in _PASSED}
        return RayJob(self._ray, self._task.options(name=name).remote(list(words), str(Path.cwd()), ours))

    def close(self) -> None:
        if self._started:
            self._ray.shutdown()


def connect() -> tuple[bool, Any]:
    """To the cluster of RAY_ADDRESS, or to one on this machine, or to a Ray of our own that nobody else can reach.

    Returns whether the connection is ours to close, and Ray.
    """
    named = os.environ.get("RAY_ADDRESS")
    address = named or _recorded_address()
    if address and not _answers(address):
        if named:
            raise ConfigError(f"no Ray cluster answers at {named}, which RAY_ADDRESS names")
        address = None  # of a cluster that has ended
    if address is None or _host_and_port(address)[0] in _LOOPBACK:
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")  # Ray's word for "on the loopback address"
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise ConfigError(f"--on ray needs Ray: {install_command('cluster')}") from None
    if ray.is_initialized():
        return False, ray
    quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address is not None:
        ray.init(address=address, **quiet)
    else:
        ray.init(address="local", include_dashboard=False, **quiet)
    return True, ray


def _recorded_address() -> str | None:
    """Of the cluster that `ray start` or a program started last on this machine, dead or alive."""
    file = Path(os.environ.get("RAY_TMPDIR", "/tmp")) / "ray" / "ray_current_cluster"
    return file.read_text().strip() or None if file.is_file() else None


def _answers(address: str) -> bool:
    """Ray itself would try for minutes."""
    try:
        socket.create_connection(_host_and_port(address), timeout=_ANSWER_SECONDS).close()
    except (OSError, ValueError):
        return False
    return True


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition("://")[2].rpartition(":")
    return host, int(port)


def _needs(settings: Mapping[str, str]) -> dict[str, Any]:
    needs: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in _OPTIONS:
            raise ConfigError(f"ray_options has {key!r}; allowed: {', '.join(_OPTIONS)}")
        try:
            needs[key] = _OPTIONS[key](value)
        except ValueError:
            raise ConfigError(f"ray_options has {key}={value}; allowed: a number") from None
    return needs


class RayJob:
    def __init__(self, ray: Any, task: Any) -> None:
        self._ray, self._task = ray, task

    def ended(self) -> bool:
        return bool(self._ray.wait([self._task], timeout=0)[0])

    def reason(self) -> str:
        """By the name of Ray's exception: WorkerCrashedError, NodeDiedError, OutOfMemoryError."""
        try:
            self._ray.get(self._task)
        except self._ray.exceptions.RayError as error:
            return type(error).__name__
        return ""

    def cancel(self) -> None:
        self._ray.cancel(self._task)
