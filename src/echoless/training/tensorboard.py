"""How is a run shown in TensorBoard? metrics.jsonl is also written as events to RUN/tensorboard (extra: tracking)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from echoless.errors import ConfigError, RunError


def require_tensorboard() -> None:
    """Refuse before any work where TensorBoard cannot be written."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: F401
    except Exception as error:  # a broken install counts as none
        raise ConfigError(
            f"tensorboard is True, which needs the extra (pip install 'echoless[tracking]'): {error}"
        ) from None


class Board:
    """Events of one process. What an earlier process wrote after step `after` is hidden, as in metrics.jsonl."""

    def __init__(self, folder: Path, *, after: int) -> None:
        require_tensorboard()
        from torch.utils.tensorboard import SummaryWriter

        try:
            self._writer = SummaryWriter(str(folder), purge_step=after + 1)
        except OSError as error:
            raise RunError(f"{folder} cannot be written: {error.strerror or error}") from None

    def record(self, line: Mapping[str, Any]) -> str:
        """One line of metrics.jsonl. Returns an error message instead of raising: logging must not stop a run."""
        try:
            for name, value in numbers(line):
                self._writer.add_scalar(name, value, line["step"])
        except OSError as error:
            return f"TensorBoard events end here, the run goes on: {error.strerror or error}"
        return ""

    def close(self) -> None:
        with suppress(OSError):
            self._writer.close()


def numbers(line: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a line with its name, `feature_norm/block03` for a nested one; the step is no number."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{inside}{name}/")
        elif name != "step":
            yield f"{inside}{name}", float(value)
