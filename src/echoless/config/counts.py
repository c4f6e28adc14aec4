"""How is a number of things written? `1 step`, `3 steps`."""

from __future__ import annotations


def counted(number: object, what: str, several: str = "") -> str:
    """`several`: the plural, where it is not the word with an s.

    >>> counted(1, "class", "classes"), counted(3, "channel")
    ('1 class', '3 channels')
    """
    return f"{number} {what}" if number == 1 else f"{number} {several or f'{what}s'}"
