"""`echoless inspect MODEL`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import InspectOptions


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Show the shortcuts of a model of another library, and the alpha that each would get.

    The model is built from its config with random weights and run once on an example; no weights are read.
    """

    model: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="MODEL")]
    """A transformers or diffusers folder (or its config.json), timm:NAME, torchvision:NAME, or a timm name."""
    options: tyro.conf.OmitArgPrefixes[InspectOptions] = field(default_factory=InspectOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Inspect, arguments, "echoless inspect")
    from echoless.exchange.inspecting import inspect_with

    print(inspect_with(command.model, command.options))
    return 0
