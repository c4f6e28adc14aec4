"""How are arguments parsed into options? tyro parses them with the dataclass, and prints `--help`.

If tyro refuses, `cli/mistakes.py` finds the reason; the output of tyro is not used.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from echoless.cli.mistakes import explain, members, values_of
from echoless.config.options.fields import explanations, is_required, word
from echoless.errors import ConfigError

Options = TypeVar("Options")


def parse(options: type[Options], words: Sequence[str], prog: str) -> Options:
    """The parsed options. A setting that was not given is None."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            read, unknown = tyro.cli(
                _command(options),
                args=list(words),
                prog=prog,
                config=(tyro.conf.DisallowNone,),
                return_unknown_args=True,
            )
    except SystemExit as end:
        if not end.code:
            raise  # --help
        raise ConfigError(explain(options, words, prog)) from None
    if unknown:
        raise ConfigError(explain(options, words, prog))
    return options(**vars(read))


def _command(options: type[Any]) -> type[Any]:
    """The options class with tyro's annotations added, so that the options do not import tyro."""
    hints, texts = get_type_hints(options), explanations(options)
    fields: list[Any] = []
    for field in dataclasses.fields(options):
        hint: Any = as_typed(hints[field.name])
        described = tyro.conf.arg(
            help=texts[field.name],
            metavar=_metavar(hints[field.name]) if field.kw_only else _positional_word(field.name, hints[field.name]),
            # The text says what happens where nothing is given.
            help_behavior_hint="" if field.default is None or field.default is False else None,
        )
        markers = (described,) if field.kw_only else (tyro.conf.Positional, described)
        value: Any = dataclasses.MISSING if is_required(field) else field.default
        fields.append((field.name, Annotated[hint, *markers], dataclasses.field(kw_only=True, default=value)))
    command = dataclasses.make_dataclass(options.__name__, fields, frozen=True)
    command.__doc__ = options.__doc__
    return command


def as_typed(hint: Any) -> Any:
    """The type that tyro parses for a field: a path is parsed as a string."""
    if hint is Path:
        return str
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return Union[tuple(dict.fromkeys(as_typed(part) for part in inner))]  # noqa: UP007
    if origin is tuple:
        return tuple[tuple(as_typed(part) for part in inner)]  # type: ignore[misc]
    return hint


def _metavar(hint: Any) -> str | None:
    """The placeholder of a value in `--help`, if tyro's default is not helpful."""
    if Path in members(hint):
        return "PATH"
    several = values_of(hint)
    words = {int: "INT", float: "FLOAT", str: "TEXT"}
    if several is None or several[1] is not None or several[0] not in words:
        return None
    return f"{words[several[0]]} [{words[several[0]]} ...]"


def _positional_word(name: str, hint: Any) -> str:
    """How an argument without a flag is shown: `DATA`, `RUN [RUN ...]`."""
    return word(name) if values_of(hint) is None else f"{word(name)} [{word(name)} ...]"
