"""`echoless serve DIR`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Serve:
    """The report live while runs train, and a gallery of all runs in a folder.

    Read-only and for this machine alone: it listens on 127.0.0.1. Ctrl-C ends it.
    """

    folder: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="DIR")]
    """A folder of runs, up to four levels deep, or one run."""
    port: int = 8137
    """Where to listen; 0 takes any free port."""


def run(arguments: Sequence[str]) -> int:
    command = parse(Serve, arguments, "echoless serve")
    from echoless.reports.server import serve

    serve(command.folder, command.port)
    return 0
