"""`echoless import FILE --out DIR`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import ImportOptions


@dataclass(frozen=True, kw_only=True)
class Import:
    """Read a checkpoint of others into our format, for --init, evaluate, embed and sample.

    .pth files of facebookresearch/mae, of the paper's authors, of SiT, DiT and U-ViT, safetensors with the same names,
    and folders of transformers' ViTMAE and ViT and diffusers' DiT. A .pth may hold code: none of it can run.
    """

    file: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="FILE")]
    """The checkpoint: a file, or a folder of transformers or diffusers."""
    out: Path
    """A new or empty folder."""
    options: tyro.conf.OmitArgPrefixes[ImportOptions] = field(default_factory=ImportOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Import, arguments, "echoless import")
    from echoless.exchange.importing import import_with

    print(import_with(command.file, command.out, command.options))
    return 0
