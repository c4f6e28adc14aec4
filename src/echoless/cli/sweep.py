"""`echoless sweep DATA --out DIR`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import SweepOptions

FAILED_EXIT_CODE, STOPPED_EXIT_CODE = 1, 75


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train and measure a grid of runs, or an experiment of the papers, and compare them over seeds.

    Says first how long it will take. Stop or kill it at any time: the same command continues, and skips what is done.
    A run that fails is reported, and the others go on. Ends with a table, DIR/sweep.csv and a page to look at.
    """

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A folder of images, parquet, tar shards, .npz, or `shapes`; labelled where accuracy is to be measured."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder to fill: one run for each line of the plan."""
    options: tyro.conf.OmitArgPrefixes[SweepOptions] = field(default_factory=SweepOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Sweep, arguments, "echoless sweep")
    from echoless.sweeps.run import run_sweep

    swept = run_sweep(command.data, command.out, command.options, lambda text: print(text, flush=True))
    if swept.stopped:
        return STOPPED_EXIT_CODE
    return FAILED_EXIT_CODE if swept.failed else 0
