"""How is a file of labels read: rows of path and label, or one label per line?"""

from __future__ import annotations

import csv
import unicodedata
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import NamedTuple, TextIO

from echoless.data.devkit import META, wordnet_ids
from echoless.data.labels import are_numbers, is_blank
from echoless.errors import DataError

_SEPARATORS = ",\t;"  # between path and label: spreadsheets of some countries write semicolons
_HEAD = 100  # lines that decide which separator is meant
_LONGEST_LINE = 2**20  # characters; a file without line ends would fill the memory before it is refused


class FoundLabels(NamedTuple):
    """One label for each image, None where there is none; note: which rows name no image, or the order of a list."""

    labels: list[int | str | None]
    note: str = ""


def read_label_file(file: Path, paths: Sequence[str], folder: Path | None = None) -> FoundLabels:
    """From rows of (path, label); or from a text file with one label per line, in the order of the sorted paths.

    folder: where the paths begin, if the images are files; a row may write it before its path.
    """
    if (lines := _one_per_line(file)) is not None:
        return _in_order(file, lines, paths)
    names = _Names(paths, folder)
    known: dict[str, str] = {}
    for row, label in _rows(file, names):
        if is_blank(label):  # with its row, the image has no label
            continue
        path = names.image_of(row)
        if known.setdefault(path, label) != label:
            raise DataError(f"labels file {file} gives {path!r} two labels, {known[path]!r} and {label!r}")
    found = [known.get(path) for path in paths]
    given = {label for label in found if label is not None}
    if not given:
        theirs = f"; its first row is for {next(iter(known))!r}{names.hint(known)}" if known else ""
        raise DataError(
            f"labels file {file} has no label for any of the {len(paths)} images, first {paths[0]!r}{theirs}"
        )
    note = _other_rows(file, known, names)
    if are_numbers(given):
        return FoundLabels([None if label is None else int(label) for label in found], note)
    return FoundLabels(list(found), note)


class _Names:
    """The paths of the images, and the other ways in which a row may write them."""

    def __init__(self, paths: Sequence[str], folder: Path | None) -> None:
        self.paths = frozenset(paths)
        parts = folder.absolute().parts if folder is not None else ()
        self._before = [f"{Path(*parts[first:]).as_posix()}/" for first in range(len(parts))]

    def image_of(self, row: str) -> str:
        """The image that a row names: with the folder before it, `\\` for `/`, or accents as macOS writes them. The row
        itself where there is none."""
        return self._found(row) or row

    def has(self, row: str) -> bool:
        return self._found(row) is not None

    def _found(self, row: str) -> str | None:
        if row in self.paths:
            return row
        path = _canonical(row)
        inside = next((path[len(before) :] for before in self._before if path.startswith(before)), path)
        return self._by_canonical.get(path) or self._by_canonical.get(inside) or None

    @cached_property
    def _by_canonical(self) -> Mapping[str, str]:
        """Two images of one name are told apart by the bytes of their paths alone."""
        found: dict[str, str] = {}
        for path in self.paths:
            name = _canonical(path)
            found[name] = "" if name in found else path
        return found

    def hint(self, rows: Collection[str]) -> str:
        """What would make images of these rows, which name none."""
        shorter = next((row for row in rows if row.partition("/")[2] in self.paths), None)
        if shorter is not None:
            return f"; paths begin inside the folder, as {shorter.partition('/')[2]!r}"
        by_case = {path.casefold(): path for path in self.paths}
        other = next((by_case[row.casefold()] for row in rows if row.casefold() in by_case), None)
        return "" if other is None else f"; upper and lower case differ, as in {other!r}"


def _canonical(path: str) -> str:
    """Names from Windows and macOS as Linux has them."""
    plain = unicodedata.normalize("NFC", path.replace("\\", "/"))
    while plain.startswith("./"):
        plain = plain[2:]
    return plain


def _other_rows(file: Path, known: Collection[str], names: _Names) -> str:
    """Rows for images that are elsewhere are no mistake, and rows with another folder before the name are one."""
    first = next(iter(known))
    others = [path for path in known if path not in names.paths and (path != first or "." in path)]  # not a header
    if not others:
        return ""
    return (
        f"{len(others)} of the {len(known)} rows of {file} name no image here, first {others[0]!r}{names.hint(others)}"
    )


def _one_per_line(file: Path) -> list[str] | None:
    """The lines of a file, blank ones too, without a separator in the first; None for a CSV, and for no text."""
    if file.suffix == ".parquet" or not file.is_file():
        return None
    try:
        with file.open(encoding="utf-8-sig") as text:
            lines, found = (line.strip() for line in _lines(text, file)), [""]
            while not found[-1]:
                found.append(next(lines, ","))
            return None if _separators_of(found[-1]) else [*found[1:], *lines]
    except (OSError, UnicodeDecodeError):
        return None


def _separators_of(line: str) -> list[str]:
    return [each for each in _SEPARATORS if each in line]


def _separator(lines: Sequence[str], names: _Names | None) -> str:
    """Which of the separators in the first line is between the columns: a path and a label may hold the others.

    The one that makes a header of that line, or under which most of the lines begin with the path of an image; else one
    that makes two columns of it, a tab, or the first.
    """

    def fit(each: str) -> tuple[int, ...]:
        rows = [row for row in csv.reader(lines, delimiter=each) if row]
        images = 0 if names is None else sum(names.has(row[0].strip()) for row in rows)
        return _is_header(rows[0]), images, _width(rows[0]) == 2, each == "\t", -lines[0].index(each)

    found = _separators_of(lines[0])
    return max(found, key=fit) if len(found) > 1 else "".join(found) or ","


def _in_order(file: Path, lines: list[str], paths: Sequence[str]) -> FoundLabels:
    """One line for each image. Beside the meta.mat of the ILSVRC2012 development kit, numbers become WordNet ids."""
    first = next(filter(None, lines))
    if first.split()[0] in set(paths):  # every line would be a class of its own
        raise DataError(f"labels file {file} has the row {first[:200]!r}; separate path and label by a comma")
    if first.lower() == "path":
        raise DataError(f"labels file {file} has the column path alone; it needs path and label")
    while len(lines) > len(paths) and not lines[-1]:  # after the last label
        lines.pop()
    if len(lines) != len(paths):
        raise DataError(
            f"labels file {file} has {len(lines)} lines and the data {len(paths)} images; allowed: rows path,label, or "
            "one label per line for each image, unreadable ones too, in the order of their names (as LC_ALL=C ls "
            "sorts); a blank line is no label"
        )
    order = sorted(range(len(paths)), key=paths.__getitem__)
    label_of = dict(zip(order, _meant(file, lines)))
    return FoundLabels([label_of[index] for index in range(len(paths))], _order_in_words(file, lines, paths, order))


def _meant(file: Path, lines: list[str]) -> list[int | str | None]:
    """The label of each line."""
    given = [line for line in lines if line]
    if not are_numbers(given):
        return [line or None for line in lines]
    numbers = [int(line) if line else None for line in lines]
    meta = file.with_name(META)
    if not meta.is_file():
        return [*numbers]
    names = wordnet_ids(meta)
    unknown = next((number for number in numbers if number is not None and number not in names), None)
    if unknown is not None:
        raise DataError(f"labels file {file} has the number {unknown}, which {meta} does not name")
    return [None if number is None else names[number] for number in numbers]


def _order_in_words(file: Path, lines: list[str], paths: Sequence[str], order: Sequence[int]) -> str:
    """Which image got the first label, and which the last: a list in another order looks like any other."""
    first, last = (f"{paths[order[place]]!r} = {lines[place] or 'no label'}" for place in (0, -1))
    return f"{file.name}, in the order of sorted names (as LC_ALL=C ls): {first}, ..., last {last}"


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
        next(_rows(file, None), None)


def _rows(file: Path, names: _Names | None) -> Iterator[tuple[str, str]]:
    """(path, label) of every row. names: of the images, where they are known."""
    if not file.is_file():  # opening a pipe would wait for ever
        found = "is not a regular file" if file.exists() else "does not exist"
        raise DataError(f"labels file {file} {found}; it must be a CSV file with rows path,label")
    if file.suffix == ".parquet":
        yield from _table_rows(file)
        return
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            lines = _lines(text, file)
            head = list(islice(dropwhile(is_blank, lines), _HEAD)) or [""]
            rows = filter(None, csv.reader(chain(head, lines), delimiter=_separator(head, names)))
            above = next(rows, [])  # the header, else the first row
            path, label, headed = _places(file, above)
            for row in rows if headed else chain([above] if above else [], rows):
                if len(row) <= max(path, label):
                    raise DataError(f"labels file {file} has the row {','.join(row)[:200]!r}; allowed: path,label")
                _require_columns_of(above, row, file, after=label + 1)
                yield row[path].strip(), row[label].strip()
    except UnicodeDecodeError as error:
        odd = error.object[error.start]
        raise DataError(f"labels file {file} is not UTF-8: it has the byte {odd:#04x}; save it as CSV UTF-8") from None
    except (OSError, csv.Error) as error:
        raise DataError(f"labels file {file} cannot be read: {error}") from None


def _places(file: Path, row: Sequence[str]) -> tuple[int, int, bool]:
    """Which columns are path and label, by the first row; and whether it is a header."""
    names = _lowered(row)
    if _is_header(row):
        return names.index("path"), names.index("label"), True
    shown = f"labels file {file} has the columns {', '.join(row)[:200]}"
    if {"path", "label"} & set(names):
        raise DataError(f"{shown}; it needs path and label")
    if _width(row) > 2:  # by position, remarks would become classes
        raise DataError(
            f"{shown}; with more than two, name them in a first row, path and label among them; a label that holds a "
            "comma needs quotes"
        )
    return 0, 1, False


def _lowered(row: Sequence[str]) -> list[str]:
    return [name.strip().lower() for name in row]


def _is_header(row: Sequence[str]) -> bool:
    return {"path", "label"} <= set(_lowered(row))


def _width(row: Sequence[str]) -> int:
    """Columns up to the last with a text: spreadsheets write empty ones behind it."""
    return max((place for place, cell in enumerate(row, 1) if cell.strip()), default=0)


def _require_columns_of(above: Sequence[str], row: Sequence[str], file: Path, after: int) -> None:
    """A label with a comma that is not in quotes is two columns, and one is lost. above: header or first row.

    Where a row may leave out its last cells, that second column would pass for one of them. after: place of the cell
    behind the label; where it is the rest of a label, it mostly begins with a blank.
    """
    columns, shown = max(2, _width(above)), f"labels file {file} has the row {','.join(row)[:200]!r}"
    quotes = "put a label that holds a comma in quotes"
    if _width(row) > columns:
        raise DataError(f"{shown}, which has more columns than others; {quotes}")
    if len(row) < columns:
        raise DataError(
            f"{shown} with {len(row)} columns, and its header has {columns}; write the empty ones too, or keep only "
            "the columns path and label"
        )
    if columns > 2 and _begins_blank(row[after : after + 1]) and not _begins_blank(above):
        raise DataError(f"{shown}, with a blank before the column that follows the label; {quotes}, or remove it")


def _begins_blank(cells: Sequence[str]) -> bool:
    return any(cell.strip() and cell[0].isspace() for cell in cells)


def _table_rows(file: Path) -> Iterator[tuple[str, str]]:
    """Of a parquet file, as `embed` writes it; rows without a label are passed over."""
    import pyarrow.parquet

    try:
        names = pyarrow.parquet.read_schema(file).names
        if not {"path", "label"} <= set(names):
            raise DataError(f"labels file {file} has the columns {', '.join(names)[:200]}; it needs path and label")
        table = pyarrow.parquet.read_table(file, columns=["path", "label"])
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"labels file {file} cannot be read: {error}") from None
    for path, label in zip(table["path"].to_pylist(), table["label"].to_pylist()):
        if label is not None:
            yield str(path), str(label)
