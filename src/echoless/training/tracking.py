"""Where else are the numbers of a run shown? Lines of metrics.jsonl are also sent to TensorBoard or Weights & Biases.

A tracker that fails says so once and is dropped: it never stops a run, and changes nothing that a run computes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from echoless.config.extras import install_command
from echoless.errors import ConfigError
from echoless.training.tensorboard import Board, import_tensorboard
from echoless.training.weights_and_biases import WandbRun, import_wandb, require_login


class Tracker(Protocol):
    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        """Numbers of one line of metrics.jsonl; any exception drops the tracker."""

    def close(self) -> None: ...


# Name -> (what imports it, the extra that installs it).
_EXTRAS: dict[str, tuple[Callable[[], Any], str]] = {
    "tensorboard": (import_tensorboard, "tracking"),
    "wandb": (import_wandb, "wandb"),
}


def require_trackers(names: Sequence[str]) -> None:
    """Refuse before any work what cannot be imported, a broken install too, and a wandb without a login."""
    for name in names:
        load, extra = _EXTRAS[name]
        try:
            load()
        except Exception as error:
            raise ConfigError(
                f"track is {name!r}, which needs the extra {extra} ({install_command(extra)}): {error}"
            ) from None
        if name == "wandb":
            require_login()


class Trackers:
    """All trackers of one process. `after`: steps that are done; what was sent of later ones is superseded."""

    def __init__(self, names: Sequence[str], out: Path, *, after: int, config: Mapping[str, Any]) -> None:
        require_trackers(names)
        self._open: dict[str, Tracker] = {}
        for name in names:
            if name == "tensorboard":
                self._open[name] = Board(out / "tensorboard", after=after)
            else:
                self._open[name] = WandbRun(out, config)

    def record(self, line: Mapping[str, Any]) -> list[str]:
        """One line of metrics.jsonl. Returns a sentence for each tracker that was dropped."""
        values, troubles = dict(numbers(line)), []
        for name, tracker in list(self._open.items()):
            try:
                tracker.record(line["step"], values)
            except Exception as error:  # whatever it is, the run goes on
                del self._open[name]
                troubles.append(f"{name} ends here, the run goes on: {getattr(error, 'strerror', None) or error}")
        return troubles

    def close(self) -> None:
        for tracker in self._open.values():
            tracker.close()


def numbers(line: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a line with its name, `feature_norm/block03` for a nested one; the step is no number."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from numbers(value, f"{inside}{name}/")
        elif name != "step" and value is not None:
            yield f"{inside}{name}", float(value)
