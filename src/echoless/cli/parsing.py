"""How do typed words become a command? tyro over a dataclass; what cannot be read is refused in one sentence."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar, get_type_hints

import tyro

from echoless.config.checks import nearest
from echoless.errors import ConfigError

Command = TypeVar("Command")


def parse(command: type[Command], arguments: Sequence[str], prog: str) -> Command:
    """The command as typed. A setting that was not given is None in Python; nobody has to type `None`."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said):
            read, unknown = tyro.cli(
                command, args=list(arguments), prog=prog, config=(tyro.conf.DisallowNone,), return_unknown_args=True
            )
    except SystemExit as end:
        if not end.code:
            raise  # --help
        raise ConfigError(f"{_complaint(said.getvalue(), prog)}; see {prog} --help") from None
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


def _complaint(box: str, prog: str) -> str:
    """The sentence inside the box that tyro draws around it."""
    plain = re.sub(r"\x1b\[[0-9;]*m", "", box).replace("─", "-")
    # A title, then the text two places from the edge; where the output is not UTF-8, a rule instead of a frame.
    lines = [line[2:].rstrip("│ ") for line in plain.splitlines()[1:]]
    rules = [i for i, line in enumerate(lines) if line and not line.strip("-╰╯ ")]
    if rules[:1] == [0]:
        lines, rules = lines[1:], [i - 1 for i in rules[1:]]
    rule = rules[0] if rules else len(lines)
    text = " ".join(" ".join(lines[:rule]).split())
    if text.startswith("Missing from"):
        missing = [line.strip() for line in lines[:rule] if re.match(r" {4}\S", line)]
        return f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing"
    if value := re.match(r"Error parsing (\S+): no type matching (.+) could be instantiated from (\[.*?\])\.", text):
        return f"{value[1]} is {' '.join(ast.literal_eval(value[3]))!r}; allowed: {re.sub('[{}]', '', value[2])}"
    if choice := re.match(r"invalid choice (.+) for argument '(.+)'\. Expected one of \((.+?),?\)", text):
        allowed = sorted(re.findall("'(.+?)'", choice[3]))  # tyro gives them in the order of a set
        return f"{choice[2]} is {choice[1]}; allowed: {', '.join(allowed)}"
    if option := re.match(r"Missing value for argument '(.+?)'", text):
        return f"{option[1]} has no value"
    return text.rstrip(".") or f"{prog} cannot read this"
