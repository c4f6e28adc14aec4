"""Which arguments does `demo` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

from echoless.config.checks import require_whole
from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class DemoOptions:
    """Pretrain a plain and a faded masked autoencoder on built-in images, and compare their features.

    The two runs differ only in alpha_min. They train side by side, take about ten minutes on two cores and download
    nothing. What counts as a win is said first. If it is interrupted, repeat the command to continue. One seed may be
    chance: `--seeds 5` repeats the comparison five times and takes five times as long.
    """

    EXAMPLES = (
        "echoless demo",
        "echoless demo --out DEMO --seeds 5",
    )

    _: KW_ONLY
    out: AnyPath = "echoless-demo"
    """Output folder for all runs, sweep.csv and report.html."""
    steps: int | None = None
    """Training steps of each run (default: those of the recipe `demo`, which fit ten minutes on two cores)."""
    seed: int = 0
    """The first random seed."""
    seeds: int = 1
    """Number of seeds: seed, seed + 1, ... Seeds that the folder already holds are not repeated."""

    def __post_init__(self) -> None:
        if self.steps is not None:
            require_whole("steps", self.steps, 1)
        require_whole("seed", self.seed, 0)
        require_whole("seeds", self.seeds, 1, 100)
