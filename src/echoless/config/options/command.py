"""Which command asks for these options? What was typed, or would have been: only what differs from the defaults."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

# How a run is started, not what it is: whoever repeats it decides these anew.
_OF_THE_MOMENT = ("resume", "overwrite", "requeue")


def as_command(verb: str, *words: str, options: Any, **named: str) -> str:
    """`echoless VERB WORDS --name VALUE ... --field VALUE ...`, quoted for a shell."""
    parts = ["echoless", verb, *words]
    for name, value in named.items():
        parts += [_flag(name), value]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in _OF_THE_MOMENT and value != field.default:
            parts += _spell(field.name, value)
    return shlex.join(parts)


def _spell(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [_flag(name if value else f"no_{name}")]
    values = value if isinstance(value, tuple) else (value,)
    return [_flag(name), *(str(item) for item in values)]


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
