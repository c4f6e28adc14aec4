"""Which arguments does `runs` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class RunsOptions:
    """List the runs of a folder, rank them by a metric, or remove some.

    ls shows every run with its state, size and numbers. best ranks runs by a metric, only among numbers that were
    measured on the same images by the same protocol. rm removes runs, after a question or with --yes: only files that
    echoless wrote, and never a run that is being trained.
    """

    EXAMPLES = (
        "echoless runs ls RUNS",
        "echoless runs best RUNS --metric knn",
        "echoless runs rm RUNS/first RUNS/second --yes",
    )

    action: Literal["ls", "best", "rm"]
    """ls, best or rm."""
    folders: tuple[AnyPath, ...] = (".",)
    """ls and best: folders of runs, up to four levels deep, or runs. rm: the runs to remove."""
    _: KW_ONLY
    metric: str = "linear"
    """Metric of best: linear, knn, finetune, frechet, ... (the names in results.json)."""
    yes: bool = False
    """Remove without asking."""
