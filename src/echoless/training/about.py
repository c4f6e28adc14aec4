"""Where, when, how long and how fast did a run train? about.json records it; results never depend on it."""

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
from echoless.config import RunConfig
from echoless.config.supervised import SupervisedConfig
from echoless.data import Images
from echoless.data.reading import describe_classes
from echoless.data.resizing import LARGE
from echoless.models import count_parameters
from echoless.runs import RunFolder
from echoless.runs.about import sentences
from echoless.runtime import Team
from echoless.runtime.machine import memory_bytes, processor, usable_cores, vector_features
from echoless.shortcuts import effective_alpha
from echoless.training.fading_in import alphas_after, fading_in_facts

_PACKAGES = ("torch", "numpy", "pillow", "safetensors", "scikit-learn")
_OF_A_SESSION = ("command", "started", "seconds", "machine", "versions")


def run_facts(config: RunConfig, images: Images, model: nn.Module) -> dict[str, Any]:
    """The facts of a run as data; `sentences` turns them into text."""
    record: dict[str, Any] = model.shortcut_record  # type: ignore[assignment]
    alphas = record["alphas"] if config.fade_in is None else alphas_after(config, config.steps)
    parameters = count_parameters(model)
    return {
        "data": data_facts(config, images),
        "model": {"title": config.model.title, "parameters": parameters},
        "parameters": {"all": parameters, "encoder": count_parameters(getattr(model, "encoder", model))},
        "shortcuts": {
            "variant": config.model.body.shortcuts.variant,
            "first_alpha": alphas[0] if alphas else None,
            "last_alpha": alphas[-1] if alphas else None,
            "effective_alpha": effective_alpha(alphas) if alphas else None,
            **fading_in_facts(config),
        },
        "run": {
            "steps": config.steps,
            "batch_size": config.batch_size,
            "epochs": config.steps * config.batch_size / images.usable,
            "optimizer": config.optim.name,
            "precision": config.precision,
            "compiled": config.compile,
            "seed": config.seed,
        },
    }


def data_facts(config: RunConfig, images: Images) -> dict[str, Any]:
    """The files, what is kept of them, and what a step sees of an image."""
    data = config.data
    size = config.model.image_size if data.latent is None else data.latent.image_size
    known = {
        "images": images.usable,
        "height": images.shape.height,
        "width": images.shape.width,
        "channels": images.shape.channels,
        "bits": images.bits,
        "input": list(size),
        "crop_scale": None if data.crop_scale is None else list(data.crop_scale),
        "interpolation": data.interpolation,
    }
    if images.file_shape is not None:
        known |= {"file_height": images.file_shape[0], "file_width": images.file_shape[1]}
    known |= {} if images.files is None else {"files": images.files}
    known |= {"file_channels": images.file_channels} if images.converted else {}
    return known | _larger(images)


def _larger(images: Images) -> dict[str, Any]:
    """How many images of a set of small ones are more than twice as large, and at what size the largest is kept."""
    side = min(images.shape.height, images.shape.width)
    ids = images.larger_than(2 * side)
    if images.sizes_N2 is None or not len(ids) or min(images.typical_size) > LARGE:
        return {}
    sizes = images.sizes_N2[ids]
    height, width = sizes[sizes.prod(axis=1).argmax()].tolist()
    return {"larger": {"images": len(ids), "height": height, "width": width}}


def opening_lines(config: RunConfig, facts: Mapping[str, Any], images: Images) -> list[str]:
    """The first lines of the log: data, model, shortcuts, run, labels, unreadable images."""
    said = sentences(facts)
    said["data"] += f"; {images.cache_note}"
    bad = [f"unreadable image, skipped: {each.path}: {each.reason}" for each in images.bad]
    labels = describe_classes(images, needed=isinstance(config.objective, SupervisedConfig))
    return [*(f"{name}: {sentence}" for name, sentence in said.items()), *labels, *bad]


class SessionRecord:
    """One session of a run in its about.json. Every write replaces the file; earlier sessions are kept."""

    def __init__(self, run: RunFolder, command: str, facts: Mapping[str, Any], team: Team) -> None:
        before = run.read_about()
        now = datetime.now(UTC).isoformat(timespec="seconds")
        self._run = run
        self._begun = time.monotonic()
        self._session: dict[str, Any] = {
            "command": command,
            "started": now,
            "seconds": None,
            "machine": _machine(team),
            "versions": _versions(),
        }
        self._about: dict[str, Any] = {
            **facts,
            # Those of the first session: later ones only continue it, and stand in the history.
            **{name: before.get(name) or self._session[name] for name in ("command", "machine", "versions")},
            "started": before.get("started") or now,
            "sessions": before.get("sessions", 0) + 1,
            "ended": before.get("ended", 0),
            "seconds": before.get("seconds", 0.0),
            "history": [*_history(before), self._session],
        }
        run.write_about(self._about)

    def note_speed(self, images_per_second: float) -> None:
        """Records the speed early, so that a sweep can estimate its time."""
        self._about["speed"] = {"images_per_second": images_per_second}
        self._session["images_per_second"] = images_per_second
        self._run.write_about(self._about)

    def end(self) -> None:
        self._session["seconds"] = round(time.monotonic() - self._begun, 1)
        self._about["ended"] += 1
        self._about["seconds"] += self._session["seconds"]
        self._run.write_about(self._about)


def _history(before: Mapping[str, Any]) -> list[Any]:
    """The earlier sessions; an old file without a list has only the latest."""
    history = before.get("history")
    if isinstance(history, list):
        return history
    return [{name: before[name] for name in _OF_A_SESSION if name in before}] if before else []


@contextmanager
def recorded(
    run: RunFolder | None, command: str, facts: Mapping[str, Any], team: Team
) -> Iterator[SessionRecord | None]:
    """Records a session and its duration. A killed session has no end, so its duration is unknown."""
    record = None if run is None else SessionRecord(run, command, facts, team)
    yield record
    if record is not None:
        record.end()


def _versions() -> dict[str, str]:
    ours = {"echoless": echoless.__version__, "python": platform.python_version()}
    return ours | {name: importlib.metadata.version(name) for name in _PACKAGES}


def _machine(team: Team) -> dict[str, Any]:
    """The hardware, without host or user names. Vector instructions are included because they affect rounding."""
    cuda, (total, _) = team.device.type == "cuda", memory_bytes()
    return {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "vector_features": vector_features(),
        "cores": usable_cores(),
        "threads": torch.get_num_threads(),
        "memory_gb": None if total is None else round(total / 2**30, 1),
        "device": torch.cuda.get_device_name(team.device) if cuda else team.device.type,
        "processes": team.world,
    }
