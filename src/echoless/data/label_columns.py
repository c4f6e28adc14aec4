"""Which columns of a table of labels are the path of an image and its label? Those that a first row names so.

A spreadsheet may call them otherwise, as `filename` and `species`. Of two columns, one name tells both.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from echoless.config.counts import joined
from echoless.data.sources import is_image_name
from echoless.errors import DataError

# Names of the two columns, without case, blanks and underscores. Where several are there, the first counts.
_PATHS = ("path", "filepath", "imagepath", "filename", "imagename", "file", "image", "img", "photo", "picture", "name")
_LABELS = ("label", "labels", "class", "classname", "category", "species", "target")


class LabelColumns(NamedTuple):
    """headed: whether the first row names them. note: a sentence where it names one by a word that is not known."""

    path: int
    label: int
    headed: bool
    note: str = ""


def label_columns(file: Path, row: Sequence[str], is_image: Callable[[str], bool] | None) -> LabelColumns:
    """By the first row of a table. is_image: whether a cell names one of the images, where they are known."""
    if _is_header(row, is_image):
        return named_columns(file, row)
    if width(row) > 2:  # by position, remarks would become classes
        raise DataError(
            f"{_shown(file, row)}; with more than two, a first row must name that of the images path and that of the "
            "classes label; a label that holds a comma needs quotes"
        )
    if len(row) > 1 and is_image is not None and not is_image(row[0].strip()) and "." not in row[0]:
        return LabelColumns(0, 1, True, _guess(file, row, 0, 1))
    return LabelColumns(0, 1, False)


def named_columns(file: Path, row: Sequence[str]) -> LabelColumns:
    """The columns that a header names; refused where it leaves open which they are."""
    words = [_word(cell) for cell in row]
    path = next((words.index(name) for name in _PATHS if name in words), None)
    labels = [place for place, word in enumerate(words) if word in _LABELS]
    label = words.index("label") if words.count("label") == 1 else labels[0] if len(labels) == 1 else None
    if path is not None and label is not None:
        return LabelColumns(path, label, True)
    known = path if label is None else label
    others = [place for place, word in enumerate(words) if word and place != known]
    if known is not None and len(others) == 1:
        path, label = (known, others[0]) if label is None else (others[0], known)
        return LabelColumns(path, label, True, _guess(file, row, path, label))
    raise DataError(f"{_shown(file, row)}; {_missing(row, path, label, labels)}")


def names_both(row: Sequence[str]) -> bool:
    words = {_word(cell) for cell in row}
    return bool(words.intersection(_PATHS)) and bool(words.intersection(_LABELS))


def width(row: Sequence[str]) -> int:
    """LabelColumns up to the last with a text: spreadsheets write empty ones behind it."""
    return max((place for place, cell in enumerate(row, 1) if cell.strip()), default=0)


def _is_header(row: Sequence[str], is_image: Callable[[str], bool] | None) -> bool:
    """A class may be called `target`: a row that names an image is none."""
    if not any(_word(cell) in (*_PATHS, *_LABELS) for cell in row) or width(row) < 2:
        return False
    return not any(is_image_name(cell.strip()) or (is_image is not None and is_image(cell.strip())) for cell in row)


def _word(cell: str) -> str:
    """`File name` and `file_name` are one name."""
    return re.sub(r"[\W_]+", "", cell).casefold()


def _shown(file: Path, row: Sequence[str]) -> str:
    return f"labels file {file} has the columns {', '.join(row)[:200]}"


def _guess(file: Path, row: Sequence[str], path: int, label: int) -> str:
    path_name, label_name = (repr(row[place].strip()[:60]) for place in (path, label))
    return f"{file.name}: the first row is taken for a header, {path_name} for the path and {label_name} for the label"


def _missing(row: Sequence[str], path: int | None, label: int | None, labels: Sequence[int]) -> str:
    """What to rename."""
    if label is None and len(labels) > 1:
        return f"of {joined([row[place].strip() for place in labels])}, the one that counts must be named label"
    if label is None and path is None:
        return "those of the images and of their classes must be named path and label"
    if label is None:
        return f"{row[path or 0].strip()!r} is the path, and the column of the classes must be named label"
    return f"{row[label].strip()!r} is the label, and the column of the images must be named path"
