"""How are arguments parsed into options? tyro parses them with the dataclass.

If tyro refuses, `cli/mistakes.py` finds the reason; the output of tyro is not used. `cli/help.py` prints `--help`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import types
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import tyro

from echoless.cli.mistakes import explain
from echoless.config.options.fields import explanations, is_required, members, with_home
from echoless.errors import ConfigError

Options = TypeVar("Options")


def parse(options: type[Options], words: Sequence[str], prog: str, other_flags: Iterable[str] = ()) -> Options:
    """The parsed options. A setting that was not given is None. `other_flags` exist too, for whoever misspells one."""
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            read, unknown = tyro.cli(
                command_of(options),
                args=list(words),
                prog=prog,
                add_help=False,
                return_unknown_args=True,
            )
    except SystemExit:
        raise ConfigError(explain(options, words, prog, other_flags)) from None
    if unknown:
        raise ConfigError(explain(options, words, prog, other_flags))
    return with_home(options(**vars(read)))


def command_of(options: type[Any]) -> type[Any]:
    """The options class with tyro's annotations added, so that the options do not import tyro."""
    hints, texts = get_type_hints(options), explanations(options)
    fields: list[Any] = []
    for field in dataclasses.fields(options):
        described = tyro.conf.arg(
            help=texts[field.name], metavar="PATH" if Path in members(hints[field.name]) else None
        )
        markers = (tyro.conf.DisallowNone, *(() if field.kw_only else (tyro.conf.Positional,)), described)
        value: Any = dataclasses.MISSING if is_required(field) else field.default
        hint: Any = as_typed(hints[field.name])
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
