"""`echoless demo`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from echoless.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Demo:
    """The main job in minutes, on images drawn on the spot: pretrain a plain and a faded masked autoencoder, equal in
    all else, and compare their frozen features. Stopped at any time, the same command continues it.
    """

    out: Path = Path("echoless-demo")
    """The folder to fill with both runs, results.json and report.html."""
    steps: int | None = None
    """Training steps of each run (default: what fits ten minutes on two cores)."""
    seed: int = 0
    """Decides everything random."""


def run(arguments: Sequence[str]) -> int:
    command = parse(Demo, arguments, "echoless demo")
    from echoless.verbs.demo import demo

    demo(command.out, steps=command.steps, seed=command.seed)
    return 0
