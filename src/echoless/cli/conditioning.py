"""`echoless conditioning DATA --out DIR`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import ConditioningOptions


@dataclass(frozen=True, kw_only=True)
class Conditioning:
    """How well each block of a fresh ViT passes differences on: with shortcuts, without, and without but initialised
    for it. Prints the table, and writes conditioning.json and conditioning.png.
    """

    data: tyro.conf.Positional[str] = "shapes:64"
    """Images to measure on."""
    out: Path
    """The folder for the table and the figure."""
    options: tyro.conf.OmitArgPrefixes[ConditioningOptions] = field(default_factory=ConditioningOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Conditioning, arguments, "echoless conditioning")
    from echoless.verbs.conditioning import conditioning_with

    conditioning_with(command.data, command.out, command.options)
    return 0
