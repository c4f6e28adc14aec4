"""Where does the output of a verb go? For people, to the terminal; with `--json`, for programs; with `--quiet`, less.

Every verb takes these options; the functions in Python do not, because they return their results.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import KW_ONLY, dataclass, fields
from typing import IO, Any

from echoless.config.options.fields import flag, group


@dataclass(frozen=True)
class OutputOptions:
    """How a verb prints."""

    _: KW_ONLY

    group("output")
    json: bool = False
    """Print results as JSON, one object per line, on stdout; everything else goes to stderr."""
    quiet: bool = False
    """Print results and errors only."""
    help: bool = False
    """Print this page (-h)."""


FLAGS = {flag(field.name): field.name for field in fields(OutputOptions)} | {"-h": "help"}


def take(words: Sequence[str]) -> tuple[OutputOptions, list[str]]:
    """These options, and the words that are left for the verb."""
    given = {FLAGS[word]: True for word in words if word in FLAGS}
    return OutputOptions(**given), [word for word in words if word not in FLAGS]


@contextmanager
def sent(output: OutputOptions, *, prints_results: bool) -> Iterator[None]:
    """While a verb runs. `prints_results`: it prints them itself, on stdout, as they come."""
    with open(os.devnull, "w") as nowhere:  # noqa: PTH123
        errors: IO[str] = nowhere if output.quiet else sys.stderr
        silent = output.quiet and not prints_results
        to: IO[str] = errors if output.json else nowhere if silent else sys.stdout
        with redirect_stdout(to), redirect_stderr(errors):
            yield


def print_records(records: Iterable[Mapping[str, Any]]) -> None:
    """One object per line. Of several processes, the first one prints."""
    if os.environ.get("RANK", "0") == "0":
        for record in records:
            print(json.dumps(record, default=str), flush=True)
