"""How is a run shown in Weights & Biases? As a run of the project "echoless" (extra: wandb).

wandb's own environment variables apply: WANDB_MODE=offline writes to RUN/wandb and sends nothing, WANDB_PROJECT names
another project. A resumed run goes on under the same id, which RUN/wandb/id.txt keeps.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from echoless.errors import RunError
from echoless.storage.atomic import explained, write_bytes


def import_wandb() -> Any:
    import wandb

    return wandb


class WandbRun:
    """One process of a run. Numbers are drawn over our steps, so that a step that is trained again replaces itself."""

    def __init__(self, out: Path, config: Mapping[str, Any]) -> None:
        wandb = import_wandb()
        try:
            self._run = wandb.init(
                project=os.environ.get("WANDB_PROJECT", "echoless"),
                name=out.resolve().name,
                id=_identity(out / "wandb" / "id.txt"),
                resume="allow",
                dir=str(out),
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


def _identity(file: Path) -> str:
    """The same for every process of a run, and for no other run."""
    if not file.is_file():
        with explained(file):
            file.parent.mkdir(exist_ok=True)
        write_bytes(file, uuid.uuid4().hex[:16].encode())
    return file.read_text().strip()
