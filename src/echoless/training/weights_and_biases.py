"""How is a run shown in Weights & Biases? As a run of the project "echoless" (extra: wandb).

wandb's own environment variables apply: WANDB_MODE=offline writes to RUN/wandb and sends nothing, WANDB_PROJECT names
another project. A resumed run goes on under the same id, which RUN/wandb/id.txt keeps.
"""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echoless.errors import ConfigError, RunError
from echoless.storage.atomic import explained, write_bytes


def import_wandb() -> Any:
    import wandb

    return wandb


def require_login() -> None:
    """Refuse before any work, and before an old run is replaced, what wandb would ask where nobody can answer.

    Of several processes only the first opens it, on a node that may be the only one with a key: wandb refuses there.
    """
    if sys.stdin.isatty() or os.environ.get("WORLD_SIZE", "1") != "1":
        return
    wandb = import_wandb()
    if (_mode() or wandb.setup().settings.mode) == "online" and not wandb.api.api_key:
        raise ConfigError("track is 'wandb', which needs `wandb login` once; WANDB_MODE=offline needs no network")


class WandbRun:
    """One process of a run. Numbers are drawn over our steps, so that a step that is trained again replaces itself."""

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        wandb = import_wandb()
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "echoless"),
                name=out.resolve().name,
                id=_identity(out / "wandb" / "id.txt"),
                resume=None if _mode() == "offline" else "allow",  # offline it is ignored, with a warning
                dir=str(out),
                mode=_mode(),
                config=dict(config),
                settings=wandb.Settings(console="off", silent=True, x_disable_stats=True),
            )
        except Exception as error:  # not logged in, no network, no room
            raise RunError(
                f"wandb cannot start: {' '.join(str(error).split())}; WANDB_MODE=offline needs no network"
            ) from None
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")

    def record(self, step: int, numbers: Mapping[str, float]) -> None:
        self._run.log({"step": step, **numbers})

    def close(self) -> None:
        self._run.finish()


def _mode() -> str | None:
    """wandb reads the variable once in a process; in a notebook it may be set later."""
    return os.environ.get("WANDB_MODE")


def _identity(file: Path) -> str:
    """The same for every process of a run, and for no other run."""
    if not file.is_file():
        with explained(file):
            file.parent.mkdir(exist_ok=True)
        write_bytes(file, uuid.uuid4().hex[:16].encode())
    return file.read_text().strip()
