"""Which arguments does `sweep` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.metrics import require_measurements
from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class SweepOptions:
    """Train and measure a grid of runs, or an experiment of the papers, and compare them over seeds.

    Says first how long it will take. Stop or kill it at any time: the same command continues, and skips what is done.
    A run that fails is reported, and the others go on. Ends with a table, DIR/sweep.csv and a page to look at.
    """

    data: AnyPath
    """A folder of images, parquet, tar shards, .npz, or `shapes`; labelled where accuracy is to be measured."""
    _: KW_ONLY
    out: AnyPath
    """The folder to fill, with one run for each line of the plan."""
    alpha_min: tuple[float, ...] = (1.0, 0.9, 0.8, 0.7, 0.6)
    """Weights of the last identity shortcut to try; 1 is a standard residual network."""
    seeds: int = 3
    """Repetitions of each setting, with seeds 0, 1, ..."""
    over: tuple[str, ...] = ()
    """Further settings of pretrain, as NAME=VALUE,VALUE: several values are tried, a single one is fixed for all runs
    (variant=faded,identity depth=6,12 base_lr=1e-3)."""
    paper: str | None = None
    """An experiment of the papers instead of a grid; `echoless recipes` lists them."""
    scale: Literal["tiny", "cpu", "paper"] = "tiny"
    """Of --paper: tiny takes minutes on two cores, cpu hours on a few, paper is as published."""

    recipe: str = "auto"
    """The named settings that the runs start from: `echoless recipes`."""
    epochs: float | None = None
    """Passes over the images of each run (default: the recipe's)."""
    max_steps: int | None = None
    """Length of each run in steps, instead of epochs."""
    batch_size: int | None = None
    """Images per step."""

    test: AnyPath | None = None
    """Images to measure on (default: five stratified folds of DATA)."""
    labels: AnyPath | None = None
    """A CSV file (path,label) for DATA."""
    test_labels: AnyPath | None = None
    """A CSV file (path,label) for --test."""
    metrics: tuple[str, ...] = ("knn", "linear", "rank")
    """What to measure of each run: any of `evaluate --metrics` that needs no samples."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    jobs: int = 1
    """Runs at a time, which share the cores; on a CPU, small networks train faster side by side."""
    print: bool = False
    """Print the commands, one line for each run, for a cluster; run nothing. The same command without it then collects
    what the runs measured."""

    def __post_init__(self) -> None:
        require_measurements(self.metrics, of_samples=False)
