"""How is a length of time written? `90s`, `45m`, `3h`, `1h30m`, `2d`."""

from __future__ import annotations

import re

from echoless.config.checks import require

SECONDS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
_WRITTEN = re.compile(r"(?:(\d+(?:\.\d+)?)d)?(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s)?")


def parse_duration(field: str, text: str) -> float:
    """Seconds.

    >>> parse_duration("time", "1h30m")
    5400.0
    """
    found = _WRITTEN.fullmatch(text.replace(" ", "").lower())
    seconds = sum(float(part) * unit for part, unit in zip(found.groups(), SECONDS.values()) if part) if found else 0.0
    require(0 < seconds <= 365 * SECONDS["d"], field, text, "a time such as 90s, 45m, 3h, 1h30m or 2d, at most 365d")
    return seconds
