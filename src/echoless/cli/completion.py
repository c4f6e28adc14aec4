"""How does a shell complete the words after `echoless`? By a script that tyro generates from the options classes."""

from __future__ import annotations

import contextlib
import dataclasses
import io
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import tyro

from echoless.cli.mistakes import members
from echoless.cli.output import OutputOptions
from echoless.cli.parsing import as_typed
from echoless.config.options import CompletionOptions
from echoless.config.options.fields import explanations
from echoless.verbs.signature import signature_of
from echoless.verbs.table import VERBS


@signature_of(CompletionOptions)
def completion(options: CompletionOptions) -> str:
    """Returns the script."""
    verbs: dict[str, Callable[..., Any]] = {name: _words_of(name, verb.options) for name, verb in VERBS.items()}
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        tyro.extras.subcommand_cli_from_dict(
            verbs, prog="echoless", args=["--tyro-print-completion", options.shell], sort_subcommands=False
        )
    return printed.getvalue().rstrip("\n")


def _words_of(name: str, options: type[Any]) -> type[Any]:
    """A class with the options of a verb, and those that every verb takes, for tyro to describe."""
    words: list[Any] = []
    for each in (options, OutputOptions):
        hints, texts = get_type_hints(each), explanations(each)
        for field in dataclasses.fields(each):
            if field.name != "help":  # tyro has its own
                words.append(_described(field, hints[field.name], texts[field.name]))
    return dataclasses.make_dataclass(name, words)


def _described(field: dataclasses.Field[Any], hint: Any, text: str) -> tuple[str, Any, Any]:
    """A field without None, which cannot be typed; its default is never shown, but must be of its type."""
    parts = members(as_typed(hint))
    metavar = "PATH" if Path in members(hint) else None
    described = tyro.conf.arg(help=text, metavar=metavar, help_behavior_hint="")
    markers = (described,) if field.kw_only else (tyro.conf.Positional, described)
    kind: Any = Annotated[Union[parts], *markers]  # noqa: UP007
    return field.name, kind, dataclasses.field(kw_only=True, default=_any_value(parts[0]))


def _any_value(kind: Any) -> Any:
    if get_origin(kind) is Literal:
        return get_args(kind)[0]
    if get_origin(kind) is tuple:
        inner = get_args(kind)
        return () if inner[-1] is Ellipsis else tuple(map(_any_value, inner))
    return kind()
