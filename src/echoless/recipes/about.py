"""Where, when and how long did a run go on? `about.json`, and a few of its images: for people, not for numbers."""

from __future__ import annotations

import importlib.metadata
import platform
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor, nn

import echoless
from echoless.data import Images, evaluation_batches
from echoless.models import count_parameters
from echoless.recipes.machine import memory_bytes, processor, usable_cores
from echoless.reports import pictures
from echoless.runs import RunFolder
from echoless.training import Team

SHOWN = 24
_PACKAGES = ("torch", "numpy", "pillow", "safetensors", "scikit-learn")


@contextmanager
def recorded(run: RunFolder | None, command: str, model: nn.Module, team: Team) -> Iterator[None]:
    """Counts the sessions of a run and their seconds. A killed one has begun and not ended, and its time is unknown."""
    if run is None:
        yield
        return
    about = _begin(run.read_about(), command, model, team)
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


def show_data(run: RunFolder, images: Images, size: tuple[int, int]) -> None:
    """A few images as the model sees them before augmentation, evenly from the whole set: RUN/figures/data.png."""
    path = run.path / "figures" / "data.png"
    if path.exists():
        return
    usable = [index for index in range(len(images)) if index not in images.excluded]
    shown = min(SHOWN, len(usable))
    ids = [usable[i * len(usable) // shown] for i in range(shown)]
    sheet = pictures.tiles(plain_images(images, ids, size), columns=12, side=48, gap=2)
    pictures.save_picture(path, sheet)


def plain_images(images: Images, ids: Sequence[int], size: tuple[int, int]) -> Tensor:
    """These images in [0, 1], BCHW, as a model of this input size sees them before they are normalised."""
    channels = images.shape.channels
    batches = evaluation_batches(
        images, size=size, batch_size=64, mean=(0.0,) * channels, std=(1.0,) * channels, ids=ids, workers=0
    )
    return torch.cat([batch.images_BCHW for batch in batches])
