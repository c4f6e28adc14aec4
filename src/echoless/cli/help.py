"""What does `echoless VERB --help` print? What the verb does, two examples, and its options by group.

Everything comes from the options class: `config/options/fields.py` says how a class states groups and help texts.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import fill, wrap
from typing import Any, get_type_hints

from echoless.config.options.fields import (
    GROUPS,
    choices,
    explanations,
    flag,
    groups,
    is_required,
    members,
    one_value,
    values_of,
    word,
)

NARROWEST, WIDEST = 60, 110
COLUMN = 26  # where the explanations begin


def help_page(options: type[Any], prog: str, *more: type[Any]) -> str:
    """`more`: options that every verb takes."""
    width = min(max(shutil.get_terminal_size().columns, NARROWEST), WIDEST)
    sections = [_usage(options, prog), *_description(options, width), *_examples(options)]
    entries = [entry for each in (options, *more) for entry in _entries(each)]
    for title in ("needed", *GROUPS):
        lines = [line for entry in entries if entry.group == title for line in _lines(entry, width)]
        if lines:
            sections.append("\n".join([_heading(title), *lines]))
    return "\n\n".join(sections)


@dataclasses.dataclass(frozen=True)
class _Entry:
    """One argument: its group, what to type, what it does."""

    group: str
    typed: str
    text: str


def _entries(options: type[Any]) -> Iterator[_Entry]:
    hints, texts, titles = get_type_hints(options), explanations(options), groups(options)
    for field in dataclasses.fields(options):
        typed = _typed(field, hints[field.name])
        needed = is_required(field) or not field.kw_only
        yield _Entry("needed" if needed else titles[field.name], typed, _with_default(texts[field.name], field))


def _typed(field: dataclasses.Field[Any], hint: Any) -> str:
    """`--epochs NUMBER`, `--resume`, `--compile, --no-compile`, `RUN [RUN ...]`."""
    if not field.kw_only:
        return _repeated(word(field.name), hint)
    if bool in members(hint):
        return flag(field.name) if field.default is False else f"{flag(field.name)}, {flag(f'no_{field.name}')}"
    return f"{flag(field.name)} {_repeated(_value(hint), hint)}"


def _repeated(value: str, hint: Any) -> str:
    """The placeholder of one value, as often as it is to be given."""
    several = values_of(hint)
    if several is None:
        return value
    return f"{value} [{value} ...]" if several[1] is None else " ".join([value] * several[1])


def _value(hint: Any) -> str:
    """`NUMBER`, `PATH`, or the words that are allowed: `linear|cosine`."""
    parts, words = members(one_value(hint)), {int: "N", float: "NUMBER", str: "TEXT"}
    if Path in parts:
        return "PATH"
    return "|".join([*(words[part] for part in parts if part in words), *choices(hint)])


def _with_default(text: str, field: dataclasses.Field[Any]) -> str:
    """The text, with what holds where nothing is given; it says so itself where that depends on something."""
    value = field.default
    if value is None or value is False or value == () or value is dataclasses.MISSING:
        return text
    shown = " ".join(map(str, value)) if isinstance(value, tuple) else "yes" if value is True else str(value)
    return f"{text.rstrip('.')} (default: {shown})."


def _usage(options: type[Any], prog: str) -> str:
    fields, hints = dataclasses.fields(options), get_type_hints(options)
    needed = [_typed(field, hints[field.name]) for field in fields if is_required(field)]
    optional = [f"[{word(field.name)}]" for field in fields if not field.kw_only and not is_required(field)]
    return " ".join([_bold("usage:"), prog, *optional, *needed, "[options]"])


def _description(options: type[Any], width: int) -> list[str]:
    paragraphs = (inspect.getdoc(options) or "").split("\n\n")
    return [fill(" ".join(text.split()), width, break_on_hyphens=False) for text in paragraphs]


def _examples(options: type[Any]) -> list[str]:
    examples = getattr(options, "EXAMPLES", ())
    return ["\n".join([_heading("examples"), *(f"  {line}" for line in examples)])] if examples else []


def _lines(entry: _Entry, width: int) -> list[str]:
    text = wrap(entry.text, width - COLUMN, break_on_hyphens=False)
    if len(entry.typed) > COLUMN - 4:
        typed = wrap(entry.typed, width - 2, subsequent_indent="    ")
        return [f"  {line}" for line in typed] + [" " * COLUMN + line for line in text]
    return [f"  {entry.typed:{COLUMN - 2}}{text[0]}", *(" " * COLUMN + line for line in text[1:])]


def _heading(title: str) -> str:
    return _bold(f"{title}:")


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if sys.stdout.isatty() and not os.environ.get("NO_COLOR") else text
