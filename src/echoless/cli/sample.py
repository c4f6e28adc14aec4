"""`echoless sample RUN --out DIR`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import SampleOptions


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Draw images from a diffusion run: PNGs, a grid, and samples.npz for evaluation suites.

    Image i depends on the seed and on i alone: batch size and number of processes change nothing. Stop it with Ctrl-C
    at any time, continue with --resume.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A diffusion run (its averaged weights; the newest checkpoint while it goes on), or a model folder."""
    out: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder to create."""
    options: tyro.conf.OmitArgPrefixes[SampleOptions] = field(default_factory=SampleOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Sample, arguments, "echoless sample")
    from echoless.evaluation.draw import draw_into

    if count := draw_into(command.run, command.out, command.options):
        print(f"{count} images in {command.out}, all of them in {command.out / 'samples.npz'}")
    return 0
