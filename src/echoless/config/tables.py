"""How do the rows of a table stand in a terminal? In columns, the widest of which are folded where they must fit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap

WIDTH = 100  # columns of a terminal
_BETWEEN = "  "
_NO_BREAK = "\N{NO-BREAK SPACE}"
_BEFORE_PERCENT = " (?=%)"  # a number stays with its unit
_IN_A_PART = "(?<!,) "  # of a list with commas
_NARROWEST = 8  # letters of a folded column: below that no word would be whole


def aligned(lines: Sequence[Sequence[str]], most: int | None = None) -> str:
    """Cells in columns, two spaces apart; `most`: letters of a line, where long cells go on in the next."""
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    if most is not None:
        widths = _narrowed(widths, most - len(_BETWEEN) * (len(widths) - 1))
    return "\n".join(
        _BETWEEN.join(cell.ljust(width) for cell, width in zip(cells, widths)).rstrip()
        for line in lines
        for cells in zip_longest(*map(_folded, line, widths), fillvalue="")
    )


def _narrowed(widths: Sequence[int], room: int) -> list[int]:
    """The widest column gives way, one letter at a time, until all fit or none can."""
    left = list(widths)
    while sum(left) > room and max(left) > _NARROWEST:
        left[left.index(max(left))] -= 1
    return left


def _folded(cell: str, width: int) -> list[str]:
    """Behind the commas of a list, where each of its parts fits."""
    if len(cell) <= width:
        return [cell]
    whole = all(len(part) < width for part in cell.split(", "))
    return wrapped(cell, width, _IN_A_PART if whole else _BEFORE_PERCENT)


def wrapped(text: str, width: int = WIDTH, kept: str = _BEFORE_PERCENT) -> list[str]:
    """The lines of a text; `kept`: the spaces at which no line ends."""
    lines = wrap(re.sub(kept, _NO_BREAK, text), width, break_on_hyphens=False)
    return [line.replace(_NO_BREAK, " ") for line in lines]
