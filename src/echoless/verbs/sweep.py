"""`sweep`: train and measure a grid of runs, or an experiment of the papers, and compare them over seeds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from echoless.config.options import SweepOptions
from echoless.sweeps.run import Say, SweepResult, run_sweep


def sweep(data: str | Path, out: str | Path, *, say: Say = print, **options: Any) -> SweepResult:
    """Run a grid or an experiment of a paper. The keywords are the fields of `SweepOptions`."""
    return run_sweep(str(data), Path(out), SweepOptions(**options), say)
