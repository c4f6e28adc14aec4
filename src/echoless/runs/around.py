"""Which run does a checkpoint, a snapshot or an encoder lie in? Not every folder around it is its run."""

from __future__ import annotations

import os
from pathlib import Path

from echoless.storage.owned import is_run


def run_of(path: Path) -> Path:
    """The run itself, or the one around RUN/encoder, RUN/checkpoints/* and RUN/snapshots/*; the path where there is
    none.

    Resolved: the parents of a relative path end in the folder in which the command was given.
    """
    path = path.resolve()
    above = path.parent
    if path.name == "encoder" and _is_run(above):
        return above
    if above.name in ("checkpoints", "snapshots") and _is_run(above.parent):
        return above.parent
    return path


def _is_run(folder: Path) -> bool:
    try:
        return is_run(os.listdir(folder))  # noqa: PTH208 (names alone)
    except OSError:
        return False
