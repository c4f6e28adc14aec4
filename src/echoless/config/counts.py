"""How is a number of things written, and a list of names? `1 step`, `1,140 images/s`, `cat, dog`."""

from __future__ import annotations

from collections.abc import Iterable


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


def speed_in_words(images_per_second: float) -> str:
    """With three digits below a thousand.

    >>> speed_in_words(34.94), speed_in_words(1139.6)
    ('34.9 images/s', '1,140 images/s')
    """
    shown = f"{images_per_second:.3g}" if images_per_second < 999.5 else f"{images_per_second:,.0f}"
    return f"{shown} images/s"
