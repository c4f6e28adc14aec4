"""`echoless embed RUN DATA --out features.parquet`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import EmbedOptions


@dataclass(frozen=True, kw_only=True)
class Embed:
    """One feature vector per image: columns path, feature and, where known, label.

    Nothing is masked. The digits are the same for any batch size and number of processes, and an embedding that was
    interrupted continues where it stopped when the same command is given again.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run, an encoder folder, a transformers folder, or timm:NAME."""
    data: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="DATA")]
    """A folder of images, parquet, tar shards, .npz, or `shapes`."""
    out: Path
    """features.parquet, or features.npy (with the paths in features.paths.txt)."""
    options: tyro.conf.OmitArgPrefixes[EmbedOptions] = field(default_factory=EmbedOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Embed, arguments, "echoless embed")
    from echoless.verbs.embed import embed_with

    rows = embed_with(command.run, command.data, command.out, command.options)
    if rows:
        print(f"{rows} vectors in {command.out}")
    return 0
