"""How are settings validated? A refusal is one sentence: the field, its value, what is allowed."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Sequence

from echoless.errors import ConfigError


def require(ok: bool, field: str, value: object, allowed: str) -> None:
    if not ok:
        raise ConfigError(f"{field} is {value!r}; allowed: {allowed}")


def require_whole(field: str, value: object, low: int, high: int | None = None) -> None:
    allowed = f"a whole number, {low} or more" if high is None else f"a whole number from {low} to {high}"
    good = isinstance(value, int) and not isinstance(value, bool) and value >= low and (high is None or value <= high)
    require(good, field, value, allowed)


def require_number(field: str, value: object, low: float, high: float, *, ends: str = "[]") -> None:
    """`ends` says which ends belong to the range: "[]", "()", "[)" or "(]"."""
    good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if good:
        assert isinstance(value, int | float)
        good = (value > low or (ends[0] == "[" and value == low)) and (
            value < high or (ends[1] == "]" and value == high)
        )
    require(good, field, value, f"a number in {ends[0]}{low:g}, {high:g}{ends[1]}")


def require_one_of(field: str, value: object, allowed: Sequence[str]) -> None:
    require(value in allowed, field, value, ", ".join(allowed) + nearest(value, allowed))


def require_length(epochs: float | None, max_steps: int | None) -> None:
    """How long a run is asked to be: by one of the two, or by neither."""
    require(epochs is None or max_steps is None, "epochs", epochs, "either epochs or max_steps, not both")
    if epochs is not None:
        require_number("epochs", epochs, 0, 1e7, ends="(]")
    if max_steps is not None:
        require_whole("max_steps", max_steps, 1, 99_999_999)


def nearest(value: object, allowed: Iterable[str]) -> str:
    """`; did you mean 'linear'?`, or nothing where no allowed name is near."""
    near = difflib.get_close_matches(str(value), list(allowed), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def meant(typed: str, names: Iterable[str]) -> str:
    """The names that have the typed word in them, `--base-lr` for `--lr`; else the nearest in spelling."""
    known = list(names)
    named = [name for name in known if typed.lstrip("-") in re.split("[-_]", name.lstrip("-"))]
    return f"; did you mean {' or '.join(map(repr, named[:3]))}?" if named else nearest(typed, known)
