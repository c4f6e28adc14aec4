"""How are things counted and listed? `1 step`, `3 steps`, `1,140 images/s`, `cat, dog`, `RUN, --train and --out`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

Item = TypeVar("Item")


def counted(number: object, what: str, several: str = "") -> str:
    """`several`: the plural, where it is not the word with an s.

    >>> counted(1, "class", "classes"), counted(3, "channel")
    ('1 class', '3 channels')
    """
    return f"{number} {what}" if number == 1 else f"{number} {several or f'{what}s'}"


def listed(names: Iterable[str]) -> str:
    """Names of classes in a row. In quotes where one could be taken for two, or for none.

    >>> listed(["cat", "tabby, tiger cat", ""])
    "cat, 'tabby, tiger cat', ''"
    """
    return ", ".join(repr(name) if "," in name or name != name.strip() or not name else name for name in names)


def joined(words: Sequence[str]) -> str:
    """One sentence's worth of names.

    >>> joined(["DATA"]), joined(["DATA", "--out"]), joined(["RUN", "--train", "--out"])
    ('DATA', 'DATA and --out', 'RUN, --train and --out')
    """
    return " and ".join([", ".join(words[:-1])] * (len(words) > 1) + list(words[-1:]))


def first_of(names: Sequence[str], most: int, of: int | None = None) -> str:
    """The first few names. of: how many there are, where not all are given.

    >>> first_of(["a", "b"], 2), first_of(["a", "b", "c"], 1), first_of(["a", "b"], 2, of=9)
    ('a, b', 'a, and 2 more', 'a, b, and 7 more')
    """
    shown = list(names[:most])
    left = (len(names) if of is None else of) - len(shown)
    return ", ".join([*shown, f"and {left} more"] if left else shown)


def first_few(items: Sequence[Item], most: int) -> Sequence[Item]:
    """The first ones; all of them where a line on the others would take the place of a single one.

    >>> first_few("abcde", 3), first_few("abcd", 3)
    ('abc', 'abcd')
    """
    return items if len(items) <= most + 1 else items[:most]


def speed_in_words(images_per_second: float) -> str:
    """With three digits below a thousand.

    >>> speed_in_words(34.94), speed_in_words(1139.6)
    ('34.9 images/s', '1,140 images/s')
    """
    shown = f"{images_per_second:.3g}" if images_per_second < 999.5 else f"{images_per_second:,.0f}"
    return f"{shown} images/s"
