"""`echoless report RUN [RUN ...] --out report.html`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Report:
    """One page that shows what was run, how training went and what was learned; several runs are compared.

    The page is one file that loads nothing, for a browser or a printer. A run may still be training, or half written.
    """

    runs: Annotated[
        tyro.conf.Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")
    ]
    """Run folders. The first is what the others are compared with."""
    out: Path = Path("report.html")
    """The page to write; an earlier one is replaced."""


def run(arguments: Sequence[str]) -> int:
    command = parse(Report, arguments, "echoless report")
    from echoless.reports.page import report

    path = report(command.runs, command.out)
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")
    return 0
