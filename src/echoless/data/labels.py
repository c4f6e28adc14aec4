"""How do the labels of a data set become integers and names?"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import NamedTuple, TextIO

import torch
from torch import Tensor

from echoless.data.devkit import META, wordnet_ids
from echoless.errors import DataError

_LONGEST_NUMBER = 18  # digits that fit 64 bits; a longer label is text
_SEPARATORS = ",\t;"  # between path and label: spreadsheets of some countries write semicolons
_LONGEST_LINE = 2**20  # characters; a file without line ends would fill the memory before it is refused


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


class FoundLabels(NamedTuple):
    """One label for each image, None where there is none; note: which rows of the file name no image."""

    labels: list[int | str | None]
    note: str = ""


def read_label_file(file: Path, paths: Sequence[str]) -> FoundLabels:
    """From rows of (path, label); or from a text file with one label per line, in the order of the sorted paths."""
    if (lines := _one_per_line(file)) is not None:
        return FoundLabels(_in_order(file, lines, paths))
    known: dict[str, str] = {}
    for path, label in _rows(file):
        if is_blank(label):  # with its row, the image has no label
            continue
        if known.setdefault(path, label) != label:
            raise DataError(f"labels file {file} gives {path!r} two labels, {known[path]!r} and {label!r}")
    found = [known.get(path) for path in paths]
    given = {label for label in found if label is not None}
    if not given:
        theirs = f"; its first row is for {next(iter(known))!r}" if known else ""
        raise DataError(
            f"labels file {file} has no label for any of the {len(paths)} images, first {paths[0]!r}{theirs}"
        )
    note = _other_rows(file, known, set(paths))
    if _are_numbers(given):
        return FoundLabels([None if label is None else int(label) for label in found], note)
    return FoundLabels(list(found), note)


def _other_rows(file: Path, known: Collection[str], paths: Collection[str]) -> str:
    """Rows for images that are elsewhere are no mistake, and rows with another folder before the name are one."""
    first = next(iter(known))
    others = [path for path in known if path not in paths and (path != first or "." in path)]  # a header is no row
    if not others:
        return ""
    shorter = next((path for path in others if path.partition("/")[2] in paths), None)
    hint = "" if shorter is None else f"; paths begin inside the folder, as {shorter.partition('/')[2]!r}"
    return f"{len(others)} of the {len(known)} rows of {file} name no image here, first {others[0]!r}{hint}"


def _are_numbers(labels: Collection[str]) -> bool:
    """Whether all are whole numbers, each written in one way: 1 and 01 are two classes."""
    whole = all(label.isdecimal() and len(label) <= _LONGEST_NUMBER for label in labels)
    return whole and len({*map(int, labels)}) == len({*labels})


def _one_per_line(file: Path) -> list[str] | None:
    """The lines of a file without a separator in its first line; None for a CSV, and for what is not text."""
    if file.suffix == ".parquet" or not file.is_file():
        return None
    try:
        with file.open(encoding="utf-8-sig") as text:
            lines = (line.strip() for line in _lines(text, file))
            first = next((line for line in lines if line), ",")
            return None if _separator(first) else [first, *(line for line in lines if line)]
    except (OSError, UnicodeDecodeError):
        return None


def _separator(line: str) -> str | None:
    """What separates the columns of a CSV file, by its first line; None where nothing does.

    A tab is in no name. Of the others it is the first: a label may hold them, and comes after the path.
    """
    if "\t" in line:
        return "\t"
    return min((each for each in _SEPARATORS if each in line), key=line.index, default=None)


def _in_order(file: Path, lines: list[str], paths: Sequence[str]) -> list[int | str | None]:
    """One line for each image. Beside the meta.mat of the ILSVRC2012 development kit, numbers become WordNet ids."""
    if lines[0].split()[0] in set(paths):  # every line would be a class of its own
        raise DataError(f"labels file {file} has the row {lines[0][:200]!r}; separate path and label by a comma")
    if lines[0].lower() == "path":
        raise DataError(f"labels file {file} has the column path alone; it needs path and label")
    if len(lines) != len(paths):
        raise DataError(
            f"labels file {file} has {len(lines)} lines and the data {len(paths)} images; allowed: rows path,label, or "
            "one label per line for each image, in the order of their names"
        )
    labels: list[int | str] = [int(line) for line in lines] if _are_numbers(lines) else [*lines]
    meta = file.with_name(META)
    if meta.is_file() and all(isinstance(label, int) for label in labels):
        names = wordnet_ids(meta)
        unknown = next((label for label in labels if label not in names), None)
        if unknown is not None:
            raise DataError(f"labels file {file} has the number {unknown}, which {meta} does not name")
        labels = [names[int(label)] for label in labels]
    order = sorted(range(len(paths)), key=paths.__getitem__)
    label_of = dict(zip(order, labels))
    return [label_of[index] for index in range(len(paths))]


def _lines(text: TextIO, file: Path) -> Iterator[str]:
    while line := text.readline(_LONGEST_LINE + 1):
        if len(line) > _LONGEST_LINE:
            raise DataError(
                f"labels file {file} has a line of more than {_LONGEST_LINE:,} characters; it is no CSV file"
            )
        yield line


def require_columns(file: Path | None) -> None:
    """Refuses a table whose header or first row is not of paths and labels, before any image is read."""
    if file is not None and _one_per_line(file) is None:
        next(_rows(file), None)


def _rows(file: Path) -> Iterator[tuple[str, str]]:
    """(path, label) of every row."""
    if not file.is_file():  # opening a pipe would wait for ever
        found = "is not a regular file" if file.exists() else "does not exist"
        raise DataError(f"labels file {file} {found}; it must be a CSV file with rows path,label")
    if file.suffix == ".parquet":
        yield from _table_rows(file)
        return
    places, headed = (0, 1), False
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            lines = _lines(text, file)
            first = next((line for line in lines if line.strip()), "")
            table = csv.reader(chain([first], lines), delimiter=_separator(first) or ",")
            above: list[str] = []  # the header, else the first row
            for row in filter(None, table):
                names = [name.strip().lower() for name in row]
                if not above and {"path", "label"} & set(names):
                    places, above, headed = _places(file, names), row, True
                    continue
                above = above or row
                if len(row) <= max(places):
                    raise DataError(f"labels file {file} has the row {','.join(row)[:200]!r}; allowed: path,label")
                _require_one_width(file, row, above, headed=headed)
                path, label = (row[place].strip() for place in places)
                yield path, label
    except UnicodeDecodeError as error:
        odd = error.object[error.start]
        raise DataError(f"labels file {file} is not UTF-8: it has the byte {odd:#04x}; save it as CSV UTF-8") from None
    except (OSError, csv.Error) as error:
        raise DataError(f"labels file {file} cannot be read: {error}") from None


def _require_one_width(file: Path, row: list[str], above: list[str], *, headed: bool) -> None:
    """A label with a comma that is not in quotes is two columns, and one is lost. above: header or first row.

    Columns without a text at the end of a row do not count: spreadsheets write them.
    """
    own, first = (
        max((place for place, cell in enumerate(each, 1) if cell.strip()), default=0) for each in (row, above)
    )
    longer = row if own > first else above if len(row) < first and not headed else None
    if longer is not None:
        raise DataError(
            f"labels file {file} has the row {','.join(longer)[:200]!r}, which has more columns than others; put a "
            "label that holds a comma in quotes"
        )


def _places(file: Path, names: list[str]) -> tuple[int, int]:
    """Where path and label are, by the header."""
    for name in ("path", "label"):
        if name not in names:
            raise DataError(f"labels file {file} has the columns {', '.join(names)[:200]}; it needs path and label")
    return names.index("path"), names.index("label")


def _table_rows(file: Path) -> Iterator[tuple[str, str]]:
    """Of a parquet file, as `embed` writes it; rows without a label are passed over."""
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(file, columns=["path", "label"])
    except (OSError, ValueError, KeyError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"labels file {file} cannot be read, it needs the columns path and label: {error}") from None
    for path, label in zip(table["path"].to_pylist(), table["label"].to_pylist()):
        if label is not None:
            yield str(path), str(label)
