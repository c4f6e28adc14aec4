"""How is a number of bytes written in an option? `512M`, `20G`, or plain digits."""

from __future__ import annotations

import re

from echoless.errors import ConfigError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def parse_bytes(name: str, text: str) -> int:
    """`20G` -> 20000000000; `name` is the field, for the refusal."""
    match = re.fullmatch(r"(\d{1,18}(?:\.\d{1,6})?) ?([KMGT]?)B?", text.strip(), re.ASCII | re.IGNORECASE)
    if match is None:
        raise ConfigError(f"{name} is {text!r}; allowed: a number of bytes, such as 20000000000 or 20G")
    return int(float(match[1]) * _UNITS[match[2].upper()])
