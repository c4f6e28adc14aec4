"""Is there room on the disk for the checkpoints of a run? Asked before the first step, not after the first hour."""

from __future__ import annotations

import shutil
from pathlib import Path

from echoless.errors import RunError
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
