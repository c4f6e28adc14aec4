"""`echoless pretrain DATA --out RUN`"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import PretrainOptions


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Pretrain a masked autoencoder with faded shortcuts on unlabelled images.

    The result is RUN/encoder, a frozen feature extractor; RUN/metrics.jsonl tells how training went. Stop it with
    Ctrl-C or SIGTERM at any time, continue with --resume.
    """

    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A folder of images (nested or flat), a .parquet file or folder of them, .tar shards, .npz, or `shapes`."""
    out: Annotated[Path, tyro.conf.arg(metavar="RUN")]
    """The run folder to create."""
    run: tyro.conf.OmitArgPrefixes[PretrainOptions] = field(default_factory=PretrainOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Pretrain, arguments, "echoless pretrain")
    from echoless.verbs.pretrain import REQUEUE_EXIT_CODE, Stopped, pretrain_with

    try:
        complete = pretrain_with(command.data, command.out, command.run)
    except Stopped as stopped:
        print(f"echoless pretrain: {stopped}", file=sys.stderr)
        complete = False
    return REQUEUE_EXIT_CODE if command.run.requeue and not complete else 0
