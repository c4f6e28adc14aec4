"""Which of the drawn images does `shapes:5000@test` name? Their number and their stream; `data/synthetic.py` draws."""

from __future__ import annotations

import re

from echoless.errors import DataError

SPLITS = ("train", "validation", "test")
DEFAULT_COUNT = 20_000


def count_and_split(name: str) -> tuple[int, str] | None:
    """Of `shapes[:COUNT][@SPLIT]`; None if the name is not of this set."""
    if name != "shapes" and not name.startswith(("shapes:", "shapes@")):
        return None
    match = re.fullmatch(r"shapes(?::(\d+))?(?:@(\w+))?", name)
    count = int(match[1]) if match and match[1] else DEFAULT_COUNT
    split = match[2] if match and match[2] else "train"
    if match is None or count < 1 or split not in SPLITS:
        raise DataError(f"data is {name!r}; allowed: shapes[:COUNT][@SPLIT] with SPLIT one of {', '.join(SPLITS)}")
    return count, split
