"""How is a run shown in TensorBoard? As events in RUN/tensorboard (extra: tracking)."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from echoless.errors import RunError


def import_tensorboard() -> Any:
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter


class Board:
    """Events of one process. What an earlier process wrote after step `after` is hidden, as in metrics.jsonl."""

    def __init__(self, folder: Path, *, after: int) -> None:
        try:
            self._writer = import_tensorboard()(str(folder), purge_step=after + 1)
        except OSError as error:
            raise RunError(f"{folder} cannot be written: {error.strerror or error}") from None

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()
