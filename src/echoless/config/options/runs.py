"""Which arguments does `runs` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class RunsOptions:
    """List the runs of a folder, rank them by a metric, or remove some, or some of their numbers.

    ls shows every run with its state, size and numbers. best ranks runs by a metric, only among numbers that were
    measured on the same images by the same protocol. rm removes runs, after a question or with --yes: only files that
    echoless wrote, and never a run that is being trained. results lists the evaluations of a run, by images and labels;
    rm-results removes those that are wrong, and keeps their numbers in RUN/results-removed.json.
    """

    EXAMPLES = (
        "echoless runs ls RUNS",
        "echoless runs best RUNS --metric knn",
        "echoless runs rm RUNS/first RUNS/second --yes",
        "echoless runs rm-results RUN --which 2",
    )

    action: Literal["ls", "best", "rm", "results", "rm-results"]
    """ls lists runs, best ranks them by a metric, rm removes some; results lists the evaluations of one run, rm-results
    removes some."""
    folders: tuple[AnyPath, ...] = (".",)
    """ls and best: folders of runs, up to four levels deep, or runs. rm: the runs to remove. Else: one run."""
    _: KW_ONLY
    metric: str = "linear"
    """Metric of best: linear, knn, finetune, frechet, ... (the names in results.json)."""
    which: tuple[int, ...] = ()
    """rm-results: the numbers of the evaluations, as results lists them."""
    yes: bool = False
    """Remove without asking."""
