"""Which arguments does `demo` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.checks import require_whole
from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class DemoOptions:
    """Pretrain a plain and a faded masked autoencoder on built-in images, and compare their features.

    The two runs differ only in alpha_min. Takes minutes and downloads nothing. If it is interrupted, repeat the
    command to continue.
    """

    _: KW_ONLY
    out: AnyPath = "echoless-demo"
    """Output folder for both runs, results.json and report.html."""
    steps: int | None = None
    """Training steps of each run (default: 1000, which fits ten minutes on two cores)."""
    seed: int | None = None
    """Random seed (default: 0)."""

    def __post_init__(self) -> None:
        if self.steps is not None:
            require_whole("steps", self.steps, 1)
