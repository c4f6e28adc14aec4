"""`echoless evaluate RUN`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import EvaluateOptions


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure frozen features: kNN, linear probe, effective rank, segmentation, maps.

    Every table has two more rows, raw pixels and the same encoder untrained, and every accuracy its 95 % bootstrap
    interval. Features are unmasked and deterministic, and cached: a second look takes seconds.
    """

    run: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="RUN")]
    """A run, an encoder folder, a transformers folder, or timm:NAME."""
    options: tyro.conf.OmitArgPrefixes[EvaluateOptions] = field(default_factory=EvaluateOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Evaluate, arguments, "echoless evaluate")
    from echoless.config.metrics import table
    from echoless.verbs.evaluate import evaluate_with

    print(table(evaluate_with(command.run, command.options, print)))
    return 0
