"""How do typed words become a command? tyro over a dataclass; an unknown option is refused in one sentence."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, get_type_hints

import tyro

from echoless.config.checks import nearest
from echoless.errors import ConfigError

Command = TypeVar("Command")


def parse(command: type[Command], arguments: Sequence[str], prog: str) -> Command:
    """The command as typed. A setting that was not given is None in Python; nobody has to type `None`."""
    read, unknown = tyro.cli(
        command, args=list(arguments), prog=prog, config=(tyro.conf.DisallowNone,), return_unknown_args=True
    )
    if unknown:
        first = unknown[0]
        kind = "option" if first.startswith("-") else "word"
        raise ConfigError(f"{first!r} is no {kind} of this verb; see {prog} --help{nearest(first, flags(command))}")
    return read


def flags(command: type[Any]) -> Iterator[str]:
    """Every `--flag` of a command, those of nested settings too."""
    hints = get_type_hints(command)
    for field in dataclasses.fields(command):
        if dataclasses.is_dataclass(hints[field.name]):
            yield from flags(hints[field.name])  # type: ignore[arg-type]
        else:
            yield f"--{field.name.replace('_', '-')}"
