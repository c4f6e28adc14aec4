"""How are configs written to and read from JSON? Strictly: an unknown key or a wrong type is an error.

A config that is one of several (a model, an objective) has a class variable `kind`; it is written beside the fields,
and selects the class that is read.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from echoless.config.checks import nearest, require
from echoless.errors import ConfigError

T = TypeVar("T")


def to_dict(config: Any) -> dict[str, Any]:
    """Nested dataclasses to nested dicts of JSON values; tuples become lists."""
    fields = {field.name: _plain(getattr(config, field.name)) for field in dataclasses.fields(config)}
    return {"kind": config.kind, **fields} if hasattr(config, "kind") else fields


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    return [_plain(item) for item in value] if isinstance(value, tuple) else value


def from_dict(cls: type[T], data: Any, field: str = "config") -> T:
    """The inverse of `to_dict`. `field` is the path that error messages name."""
    require(isinstance(data, Mapping), field, data, "an object with named fields")
    if (kind := getattr(cls, "kind", None)) and "kind" in data:
        require(data["kind"] == kind, f"{field}.kind", data["kind"], kind)
        data = {key: value for key, value in data.items() if key != "kind"}
    hints = get_type_hints(cls)
    fields = {entry.name: entry for entry in dataclasses.fields(cls)}  # type: ignore[arg-type]
    known = {name: hints[name] for name in fields}
    for key in data:
        if key not in known:
            raise ConfigError(
                f"{field} has the unknown field {key!r}; allowed: {', '.join(known)}{nearest(key, known)}"
            )
    values = {
        key: _of_kind(fields[key].metadata.get("kinds"), known[key], value, f"{field}.{key}")
        for key, value in data.items()
    }
    try:
        return cls(**values)
    except TypeError as error:  # a field without a default is missing
        raise ConfigError(f"{field} is incomplete: {error}") from None


def _of_kind(kinds: Mapping[str, Any] | None, hint: Any, value: Any, field: str) -> Any:
    """A field with a table of kinds (its metadata) holds one of them; any other is what its type says."""
    if kinds is None or not isinstance(value, Mapping) or "kind" not in value:
        return _typed(hint, value, field)
    require(value["kind"] in list(kinds), f"{field}.kind", value["kind"], ", ".join(kinds))
    return from_dict(kinds[value["kind"]], value, field)


def _typed(hint: Any, value: Any, field: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if dataclasses.is_dataclass(hint):
        return from_dict(hint, value, field)  # type: ignore[arg-type]
    if origin in (Union, types.UnionType):
        return _first_that_fits(args, value, field)
    if origin is Literal:
        require(value in args and type(value) is type(args[args.index(value)]), field, value, ", ".join(map(str, args)))
        return value
    if origin is tuple:
        return _tuple(args, value, field)
    return _scalar(hint, value, field)


def _first_that_fits(options: tuple[Any, ...], value: Any, field: str) -> Any:
    kinds = {option.kind: option for option in options if hasattr(option, "kind")}
    if kinds and isinstance(value, Mapping) and "kind" in value:
        require(value["kind"] in list(kinds), f"{field}.kind", value["kind"], ", ".join(kinds))
        return _typed(kinds[value["kind"]], value, field)
    # Without a kind: a plain value, or a config that was written before there were kinds, whose fields tell.
    for option in options:
        if option is type(None):
            if value is None:
                return None
            continue
        try:
            return _typed(option, value, field)
        except ConfigError as error:
            refusal = error
    raise refusal


def _tuple(args: tuple[Any, ...], value: Any, field: str) -> tuple[Any, ...]:
    require(isinstance(value, list | tuple), field, value, "a list")
    if len(args) == 2 and args[1] is Ellipsis:
        args = (args[0],) * len(value)
    require(len(value) == len(args), field, value, f"a list of {len(args)} values")
    return tuple(_typed(arg, item, f"{field}[{i}]") for i, (arg, item) in enumerate(zip(args, value)))


def _scalar(hint: Any, value: Any, field: str) -> Any:
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)  # JSON writes 1.0 as 1 in other people's tools
    good = isinstance(value, hint) and (hint is bool or not isinstance(value, bool))
    require(good, field, value, f"a value of type {hint.__name__}")
    return value
