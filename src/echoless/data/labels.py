"""How do the labels of a data set become integers and names?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

_LONGEST_NUMBER = 18  # digits that fit 64 bits; a longer label is text


def encode_labels(
    labels: Sequence[int | str | None] | None, class_names: Sequence[str] | None
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """labels_N, int64, and the name of each class.

    Integers that the data names, or that count from 0, stay as they are; anything else is numbered in sorted order.
    An image without a label has -1.
    """
    if labels is None:
        return None, None
    distinct = {label for label in labels if label is not None}
    integers = all(isinstance(label, int) for label in distinct)
    if integers and class_names is not None and all(0 <= int(label) < len(class_names) for label in distinct):
        numbers = [-1 if label is None else int(label) for label in labels]
        return torch.tensor(numbers, dtype=torch.int64), tuple(class_names)
    # Numbers sort as numbers, text as text.
    ordered = sorted(distinct, key=lambda label: (isinstance(label, str), label))
    number: dict[int | str | None, int] = {label: position for position, label in enumerate(ordered)} | {None: -1}
    return torch.tensor([number[label] for label in labels], dtype=torch.int64), tuple(str(label) for label in ordered)


def known_labels(labels: Sequence[int | str | None]) -> list[int | str | None] | None:
    """None for an image without one: an empty cell is no class without a name.

    None where no image has one, and where all are -1, as in test sets whose labels are secret.
    """
    found = [None if label is None or is_blank(label) else label for label in labels]
    return None if all(label in (None, -1) for label in found) else found


def is_blank(label: int | str) -> bool:
    """As pandas writes what is missing."""
    return isinstance(label, str) and not label.strip()


def are_numbers(labels: Collection[str]) -> bool:
    """Whether all are whole numbers, each written in one way: 1 and 01 are two classes."""
    whole = all(label.isdecimal() and len(label) <= _LONGEST_NUMBER for label in labels)
    return whole and len({*map(int, labels)}) == len({*labels})
