"""Is there room for a run: on the disk for its checkpoints, in memory for its batch? Asked before the first step."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch

from echoless.config import RunConfig
from echoless.config.memory import require_batch_fits
from echoless.errors import RunError
from echoless.runtime import Team
from echoless.runtime.machine import memory_bytes
from echoless.storage.atomic import nearest_existing
from echoless.training.step import Trainee

_OF_THE_WEIGHTS = 3  # a checkpoint is at least the weights and two moments of each


def require_room(out: Path, trainee: Trainee, keep: int) -> None:
    """The checkpoints that are kept, and the one that is written before the oldest goes, must fit."""
    weights = sum(tensor.numel() * tensor.element_size() for tensor in trainee.model.state_dict().values())
    each = weights * (_OF_THE_WEIGHTS + (trainee.ema is not None))
    free, needed = shutil.disk_usage(nearest_existing(out)).free, (keep + 1) * each
    if free < needed:
        raise RunError(
            f"{out} needs about {needed / 1e6:,.0f} MB for its checkpoints, but {free / 1e6:,.0f} MB are free; free "
            "some, or give --out on another disk"
        )


def require_memory(config: RunConfig, team: Team, *, recompute: bool) -> None:
    """The batch must fit in the memory of the device, of which other programs may use any part."""
    where, total = "this machine", None
    if team.device.type == "cpu":
        total, _ = memory_bytes()
    elif team.device.type == "cuda":
        where, total = "the GPU", torch.cuda.get_device_properties(team.device).total_memory
    require_batch_fits(config, total, where, processes=team.world, recompute=recompute)
