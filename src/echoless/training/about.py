"""Where, when and how long did a run go on? `about.json`, and a few of its images: for people, not for numbers."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import torch
from torch import nn

import echoless
from echoless.models import count_parameters
from echoless.runs import RunFolder
from echoless.runtime import Team
from echoless.runtime.machine import memory_bytes, processor, usable_cores

SHOWN = 24
_PACKAGES = ("torch", "numpy", "pillow", "safetensors", "scikit-learn")


@contextmanager
def recorded(
    run: RunFolder | None, command: str, model: nn.Module, team: Team, runtime: Mapping[str, Any] | None = None
) -> Iterator[None]:
    """Counts the sessions of a run and their seconds. A killed one has begun and not ended, and its time is unknown.

    `runtime`: the settings that the next --resume is to remember.
    """
    if run is None:
        yield
        return
    about = _begin(run.read_about(), command, model, team) | {"runtime": dict(runtime or {})}
    run.write_about(about)
    started = time.monotonic()
    yield
    about["ended"] += 1
    about["seconds"] += round(time.monotonic() - started, 1)
    run.write_about(about)


def _begin(before: dict[str, Any], command: str, model: nn.Module, team: Team) -> dict[str, Any]:
    encoder = getattr(model, "encoder", model)
    return {
        "command": command,
        "machine": _machine(team),
        "versions": {"echoless": echoless.__version__, "python": platform.python_version()}
        | {name: importlib.metadata.version(name) for name in _PACKAGES},
        "parameters": {"all": count_parameters(model), "encoder": count_parameters(encoder)},
        "started": before.get("started") or datetime.now(UTC).isoformat(timespec="seconds"),
        "sessions": before.get("sessions", 0) + 1,
        "ended": before.get("ended", 0),
        "seconds": before.get("seconds", 0.0),
    }


def _machine(team: Team) -> dict[str, Any]:
    """What it ran on; no name of the host or of a person."""
    cuda = team.device.type == "cuda"
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(memory_bytes()[0] / 2**30, 1),
        "device": torch.cuda.get_device_name(team.device) if cuda else team.device.type,
        "processes": team.world,
    }
