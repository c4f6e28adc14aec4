"""How do the arguments of a call in Python become options? As they would be typed, or refused in one sentence.

Natural types are taken: a path object, a list, a number of numpy, one value where several may be given. What no reading
fits is refused here: a word that is not listed as on the command line, another type with what the option is for. Ranges
and names of tables are checked where the options are used.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from echoless.config.checks import meant, nearest
from echoless.config.options.fields import allowed, choices, explanations, members, one_value, positional, values_of
from echoless.errors import ConfigError

Options = TypeVar("Options")
_NAMES = {str: "a text", Path: "a path", int: "a whole number", float: "a number", bool: "True or False"}


def options_from(options: Callable[..., Options], verb: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Options:
    signature = inspect.signature(options)
    for name in kwargs:
        if name not in signature.parameters:
            raise TypeError(f"unknown option {name!r} of {verb}{meant(name, signature.parameters)}")
    hints = get_type_hints(options)
    try:
        given = signature.bind(*args, **kwargs).arguments
    except TypeError as error:
        advice = _as_one_list(options, hints, args)
        raise TypeError(f"{verb} cannot be called so: {error}{advice}; see help(echoless.{verb})") from None
    return options(**{name: _fitted(options, name, hints[name], _plain(value)) for name, value in given.items()})


def _as_one_list(options: Any, hints: Mapping[str, Any], args: Sequence[Any]) -> str:
    """How several values are given by position, as each of them was by itself."""
    names = positional(options)
    takes_several = bool(names) and values_of(hints[names[-1]]) is not None
    return f"; give several {names[-1]} as one list" if takes_several and len(args) > len(names) else ""


def _plain(value: Any) -> Any:
    """As it would be typed: a path as text, a list as a tuple, numbers of numpy or torch as those of Python."""
    if isinstance(value, tuple | list):
        return tuple(_plain(item) for item in value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return _plain(value.tolist()) if getattr(value, "ndim", None) in (0, 1) else value


def _fitted(options: Any, name: str, hint: Any, value: Any) -> Any:
    for candidate in (value, (value,)):
        if _fits(hint, candidate):
            return candidate
    if words := choices(hint):
        items = value if values_of(hint) and isinstance(value, tuple) else (value,)
        wrong = next(item for item in items if not _fits(one_value(hint), item))
        raise ConfigError(f"{name} is {_shown(wrong)}; allowed: {allowed(hint)}{nearest(wrong, words)}")
    text = explanations(options)[name]
    purpose = text.split(". ")[0].split(": ")[0].split(" (default")[0].rstrip(".")
    without = f'; {name}="none" ignores them' if "`none`" in text else ""  # None stands for the default
    raise ConfigError(
        f"{name} is {_shown(value)}; it must be {_described(hint)}: {purpose[0].lower()}{purpose[1:]}{without}"
    )


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 and "\n" not in text else f"of the type {type(value).__name__}"


def _fits(hint: Any, value: Any) -> bool:
    return (value is None and type(None) in get_args(hint)) or any(_is(part, value) for part in members(hint))


def _is(part: Any, value: Any) -> bool:
    """Whether a value has this type; a whole number is a number, and True is none."""
    if get_origin(part) is tuple:
        inner = get_args(part)
        length = isinstance(value, tuple) and (inner[-1] is Ellipsis or len(value) == len(inner))
        return length and all(_fits(inner[0], item) for item in value)
    if get_origin(part) is Literal:
        return isinstance(value, str) and value in get_args(part)
    kinds: dict[Any, Any] = {Path: str, float: int | float}
    return isinstance(value, kinds.get(part, part)) and (part is bool or not isinstance(value, bool))


def _described(hint: Any) -> str:
    found = []
    for part in members(hint):
        if get_origin(part) is tuple:
            inner = get_args(part)
            one, more = _described(inner[0]), inner[-1] is Ellipsis
            found.append(f"{one}, or a list of such" if more else f"a list of {len(inner)} values, each {one}")
        else:
            found.append(_NAMES[part])
    return " or ".join(found)
