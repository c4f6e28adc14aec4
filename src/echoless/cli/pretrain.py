"""`echoless pretrain DATA --out RUN`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from echoless.config.options import PretrainOptions


@dataclass(frozen=True, kw_only=True)
class Pretrain:
    """Pretrain a masked autoencoder with faded shortcuts on unlabelled images.

    The result is RUN/encoder, a frozen feature extractor; RUN/metrics.jsonl tells how training went. Stop it with
    Ctrl-C or SIGTERM at any time, continue with --resume.
    """

    data: tyro.conf.Positional[str]
    """A folder of images (nested or flat), a .parquet file or folder of them, .tar shards, .npz, or `shapes`."""
    out: Path
    """The run folder to create."""
    options: tyro.conf.OmitArgPrefixes[PretrainOptions] = field(default_factory=PretrainOptions)


def run(arguments: Sequence[str]) -> int:
    command = tyro.cli(Pretrain, args=list(arguments), prog="echoless pretrain")
    from echoless.recipes.pretrain import REQUEUE_EXIT_CODE, pretrain_with

    complete = pretrain_with(command.data, command.out, command.options)
    return REQUEUE_EXIT_CODE if command.options.requeue and not complete else 0
