"""How do the labels of a data set become integers and names?"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from echoless.errors import DataError


def encode_labels(
    labels: Sequence[int | str] | None, class_names: Sequence[str] | None
) -> tuple[Tensor | None, tuple[str, ...] | None]:
    """labels_N, int64, and the name of each class.

    Integers that the data names, or that count from 0, stay as they are; anything else is numbered in sorted order.
    """
    if labels is None:
        return None, None
    distinct = set(labels)
    integers = all(isinstance(label, int) for label in distinct)
    if integers and class_names is not None and all(0 <= int(label) < len(class_names) for label in distinct):
        return torch.tensor(labels, dtype=torch.int64), tuple(class_names)
    # Numbers sort as numbers, text as text.
    ordered = sorted(distinct, key=lambda label: (isinstance(label, str), label))
    number = {label: position for position, label in enumerate(ordered)}
    return torch.tensor([number[label] for label in labels], dtype=torch.int64), tuple(str(label) for label in ordered)


def read_label_file(file: Path, paths: Sequence[str]) -> list[int | str]:
    """One label per path from a CSV of (path, label), with or without a header; rows for other paths do not matter."""
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            rows = [row for row in csv.reader(text) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"labels file {file} cannot be read: {error}") from None
    path_column, label_column = 0, 1
    if rows and {"path", "label"} <= set(rows[0]):
        path_column, label_column = rows[0].index("path"), rows[0].index("label")
        rows = rows[1:]
    short = next((row for row in rows if len(row) <= max(path_column, label_column)), None)
    if short is not None:
        raise DataError(f"labels file {file} has the row {','.join(short)!r}; allowed: path,label")
    known = {row[path_column].strip(): row[label_column].strip() for row in rows}
    missing = [path for path in paths if path not in known]
    if missing:
        raise DataError(
            f"labels file {file} has no row for {len(missing)} of {len(paths)} images, first {missing[0]!r}"
        )
    found = [known[path] for path in paths]
    return [int(label) for label in found] if all(label.isdecimal() for label in found) else list(found)
