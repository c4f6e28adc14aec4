"""Which arguments does `demo` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.checks import require_whole
from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class DemoOptions:
    """Pretrain a plain and a faded masked autoencoder on drawn images, and compare their features.

    The two are equal in all but alpha_min. It takes minutes and downloads nothing. Stopped at any time, the same
    command continues it.
    """

    _: KW_ONLY
    out: AnyPath = "echoless-demo"
    """The folder to fill with both runs, results.json and report.html."""
    steps: int | None = None
    """Training steps of each run (default: 1000, which fits ten minutes on two cores)."""
    seed: int | None = None
    """Decides every draw (default: 0)."""

    def __post_init__(self) -> None:
        if self.steps is not None:
            require_whole("steps", self.steps, 1)
