"""Which flags, positional arguments, groups and help texts does an options class define?

The command line, the Python signature, `help()` and the reference pages are all derived from these functions.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import os
import textwrap
import types
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

AnyPath = str | Path
Options = TypeVar("Options")


def positional(options: type[Any]) -> list[str]:
    """The fields that are given by position, on the command line and in Python."""
    return [field.name for field in dataclasses.fields(options) if not field.kw_only]


def is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def flag(name: str) -> str:
    """`alpha_min` -> `--alpha-min`"""
    return f"--{name.replace('_', '-')}"


def word(name: str) -> str:
    """Name of a positional argument in messages: `data` -> `DATA`; `runs`, each of which is one word, -> `RUN`."""
    return "RUN" if name == "runs" else name.upper()


def members(hint: Any) -> tuple[Any, ...]:
    """The members of a union without None; the hint itself where it is none."""
    if get_origin(hint) in (Union, types.UnionType):
        return tuple(inner for part in get_args(hint) for inner in members(part) if inner is not type(None))
    return (hint,)


def values_of(hint: Any) -> tuple[Any, int | None] | None:
    """(type of one value, how many; None for any number) of a field that takes several."""
    for part in members(hint):
        if get_origin(part) is tuple:
            inner = get_args(part)
            return inner[0], None if inner[-1] is Ellipsis else len(inner)
    return None


def one_value(hint: Any) -> Any:
    """The type of one value of a field, whether or not it takes several."""
    several = values_of(hint)
    return several[0] if several else hint


def choices(hint: Any) -> list[str]:
    """The words that a field takes, where they are listed."""
    parts = members(one_value(hint))
    return [str(choice) for part in parts if get_origin(part) is Literal for choice in get_args(part)]


def allowed(hint: Any) -> str:
    """What one value of a field may be, for a refusal: numbers, and the words that are listed."""
    numbers = {int: "a whole number", float: "a number"}
    return ", ".join([*(numbers[part] for part in members(one_value(hint)) if part in numbers), *choices(hint)])


def given(options: Any, *names: str) -> dict[str, Any]:
    """The named fields that are not None: what the user gave."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def filled(options: Options, known: Mapping[str, Any]) -> Options:
    """The options, with missing values filled in from `known`."""
    missing = {name: value for name, value in known.items() if getattr(options, name) is None}
    return dataclasses.replace(options, **missing)  # type: ignore[type-var]


def path_text(path: AnyPath | None) -> str | None:
    """A path that may be missing, as text."""
    return str(path) if path else None


def at_home(path: AnyPath) -> str:
    """`~` at its beginning is the user's home, where no shell has seen it: in Python, and behind `--out=`.

    The name of a user who does not exist stays as it is.
    """
    return os.path.expanduser(path)  # noqa: PTH111 (a Path raises RuntimeError there)


def with_home(options: Options) -> Options:
    """The options, with the user's home for `~` in every path. Whoever makes options from what was given calls it."""
    hints = get_type_hints(type(options))
    paths = {name: _at_home(value) for name, value in vars(options).items() if "Path" in str(hints[name])}
    return dataclasses.replace(options, **paths)  # type: ignore[type-var]


def _at_home(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_at_home, value))
    return at_home(value) if isinstance(value, AnyPath) else value


def summary(options: type[Any]) -> str:
    """The first line of the docstring: what the verb does."""
    return (inspect.getdoc(options) or "").splitlines()[0]


# The groups of `--help`, in the order in which it shows them: what everybody needs first.
GROUPS = (
    "common options",
    "images and labels",
    "measurements",
    "generated images",
    "shortcuts",
    "network",
    "masked autoencoders",
    "diffusion models",
    "supervised training",
    "optimiser",
    "saving and continuing",
    "machine",
    "rarely needed",
    "output",
)


def group(title: str) -> None:
    """Written in the body of an options class: `--help` shows the fields below it in this group."""
    if title not in GROUPS:
        raise ValueError(f"group is {title!r}; allowed: {', '.join(GROUPS)}")


def groups(options: type[Any]) -> dict[str, str]:
    """Field -> its group; what stands above the first `group(...)` is common."""
    current, found = GROUPS[0], {}
    for line in _body(options):
        match line:
            case ast.Expr(ast.Call(ast.Name("group"), [ast.Constant(str(title))])):
                current = title
            case ast.AnnAssign(ast.Name(name)):
                found[name] = current
    return found


def explanations(options: type[Any]) -> dict[str, str]:
    """Field -> the string that stands under it in the source, on one line."""
    found = {}
    for lines in pairwise(_body(options)):
        match lines:
            case ast.AnnAssign(ast.Name(name)), ast.Expr(ast.Constant(str(text))):
                found[name] = " ".join(text.split())
    return found


def _body(options: type[Any]) -> list[ast.stmt]:
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(options))).body
    assert isinstance(definition, ast.ClassDef)
    return definition.body
