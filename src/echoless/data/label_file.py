"""How is a file of labels read: rows of path and label, or one label per line?"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterator, Sequence
from itertools import chain, dropwhile, islice
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from echoless.config.counts import counted
from echoless.data.devkit import META, wordnet_ids
from echoless.data.label_columns import label_columns, named_columns, names_both, width
from echoless.data.label_paths import ImagePaths, shown
from echoless.data.labels import are_numbers, is_blank
from echoless.errors import DataError

_SEPARATORS = ",\t;"  # between path and label: spreadsheets of some countries write semicolons
_HEAD = 100  # lines that decide which separator is meant
_SNIFFED = 1024  # bytes that tell what kind of file it is
_OLE = b"\xd0\xcf\x11\xe0"  # spreadsheets before 2007
_SPREADSHEETS = (".xlsx", ".xlsm", ".ods", ".numbers")
_MARKS = (b"[Content_Types].xml", b"opendocument.spreadsheet")  # of those with another name
_LONGEST_LINE = 2**20  # characters; a file without line ends would fill the memory before it is refused


class FoundLabels(NamedTuple):
    """One label for each image, None where there is none; note: what was taken for a header or for the folder, which
    rows name no image, or the order of a list."""

    labels: list[int | str | None]
    note: str = ""


def read_label_file(file: Path, paths: Sequence[str], folder: Path | None = None) -> FoundLabels:
    """From rows of (path, label); or from a text file with one label per line, in the order of the sorted paths.

    folder: where the paths begin, if the images are files; a row may write it before its path.
    """
    _require_text(file)
    if (lines := _one_per_line(file)) is not None:
        return _in_order(file, lines, paths)
    names, notes = ImagePaths(paths, folder), list[str]()
    rows = [(row, label) for row, label in _rows(file, names, notes) if not is_blank(label)]
    if place := names.follow([row for row, _ in rows]):
        notes.append(f"{file.name}: its rows are for images in {shown(place)}, which is taken for {shown(str(folder))}")
    known = _by_image(file, rows, names)
    found = [known.get(path) for path in paths]
    given = {label for label in found if label is not None}
    if not given:
        raise DataError(_no_label(file, known, names, paths, notes))
    note = "; ".join([*notes, *_other_rows(file, known, names)])
    if are_numbers(given):
        return FoundLabels([None if label is None else int(label) for label in found], note)
    return FoundLabels(list(found), note)


def _by_image(file: Path, rows: Sequence[tuple[str, str]], names: ImagePaths) -> dict[str, str]:
    """The label of each path. An image whose row has none is not among them."""
    known: dict[str, str] = {}
    for row, label in rows:
        path = names.image_of(row)
        if known.setdefault(path, label) != label:
            raise DataError(f"labels file {file} gives {shown(path)} two labels, {known[path]!r} and {label!r}")
    return known


def _no_label(file: Path, known: Collection[str], names: ImagePaths, paths: Sequence[str], notes: Sequence[str]) -> str:
    """Why a file is refused: with the first path of both sides, and what a row must look like."""
    none = f"labels file {file} has no label for any of the {counted(len(paths), 'image')}"
    if not known:
        return "; ".join([f"{none}, first {shown(paths[0])}", *notes])
    hint = names.hint(known) or f"a path must look like {shown(paths[0])}"
    return "; ".join([none, *notes, f"its first row is for {shown(next(iter(known)))}", hint])


def _other_rows(file: Path, known: Collection[str], names: ImagePaths) -> list[str]:
    """Rows for images that are elsewhere are no mistake, and rows with another folder before the name are one."""
    others = [path for path in known if path not in names.paths]
    if not others:
        return []
    many = f"{len(others)} of the {counted(len(known), 'row')} of {file}"
    return [f"{many} name no image here, first {shown(others[0])}", *filter(None, [names.hint(others)])]


def _require_text(file: Path) -> None:
    """Refuses a spreadsheet, an archive and whatever else is no text, by its first bytes. Parquet files say so."""
    if file.suffix == ".parquet" or not file.is_file():
        return
    try:
        with file.open("rb") as opened:
            head = opened.read(_SNIFFED)
    except OSError as error:
        raise DataError(f"labels file {file} cannot be read: {error}") from None
    if head.startswith(b"PAR1"):
        raise DataError(f"labels file {file} is a parquet file; give it a name that ends in .parquet")
    archive = head.startswith(b"PK\x03\x04")
    if head.startswith(_OLE) or (archive and (file.suffix.lower() in _SPREADSHEETS or any(m in head for m in _MARKS))):
        raise DataError(f"labels file {file} is a spreadsheet; save it as CSV (UTF-8), and give that file")
    if archive:
        raise DataError(f"labels file {file} is a zip archive; give the CSV file that is in it")
    if b"\0" in head and not head.startswith((b"\xff\xfe", b"\xfe\xff")):  # UTF-16 is told its own sentence
        raise DataError(f"labels file {file} is no text; give a CSV file (UTF-8) with rows path,label")


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


def _separator(lines: Sequence[str], names: ImagePaths | None) -> str:
    """Which of the separators in the first line is between the columns: a path and a label may hold the others.

    The one that makes a header of that line, or under which most of the lines have the path of an image; else one
    that makes two columns of it, a tab, or the first.
    """

    def fit(each: str) -> tuple[int, ...]:
        rows = [row for row in csv.reader(lines, delimiter=each) if row]
        images = 0 if names is None else sum(any(names.has(cell.strip()) for cell in row) for row in rows)
        return names_both(rows[0]), images, width(rows[0]) == 2, each == "\t", -lines[0].index(each)

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
            f"labels file {file} has {counted(len(lines), 'line')} and the data {counted(len(paths), 'image')}; "
            "allowed: rows path,label, or one label per line for each image, unreadable ones too, in the order of "
            "their names (as LC_ALL=C ls sorts); a blank line is no label"
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
    if file is not None:
        _require_text(file)
        if _one_per_line(file) is None:
            next(_rows(file, None, []), None)


def _rows(file: Path, names: ImagePaths | None, notes: list[str]) -> Iterator[tuple[str, str]]:
    """(path, label) of every row. names: of the images, where they are known. notes: gets what was guessed."""
    if not file.is_file():  # opening a pipe would wait for ever
        found = "is not a regular file" if file.exists() else "does not exist"
        raise DataError(f"labels file {file} {found}; it must be a CSV file with rows path,label")
    if file.suffix == ".parquet":
        yield from _table_rows(file, notes)
        return
    try:
        with file.open(newline="", encoding="utf-8-sig") as text:
            lines = _lines(text, file)
            head = list(islice(dropwhile(is_blank, lines), _HEAD)) or [""]
            rows = filter(None, csv.reader(chain(head, lines), delimiter=_separator(head, names)))
            above = next(rows, [])  # the header, else the first row
            path, label, headed, note = label_columns(file, above, None if names is None else names.has)
            notes += [note] if note else []
            if names is None:  # how rows are separated is known by the images they name
                return
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


def _require_columns_of(above: Sequence[str], row: Sequence[str], file: Path, after: int) -> None:
    """A label with a comma that is not in quotes is two columns, and one is lost. above: header or first row.

    Where a row may leave out its last cells, that second column would pass for one of them. after: place of the cell
    behind the label; where it is the rest of a label, it mostly begins with a blank.
    """
    columns, said = max(2, width(above)), f"labels file {file} has the row {','.join(row)[:200]!r}"
    quotes = "put a label that holds a comma in quotes"
    if width(row) > columns:
        raise DataError(f"{said}, which has more columns than others; {quotes}")
    if len(row) < columns:
        raise DataError(
            f"{said} with {len(row)} columns, and its header has {columns}; write the empty ones too, or keep only "
            "the columns path and label"
        )
    if columns > 2 and _begins_blank(row[after : after + 1]) and not _begins_blank(above):
        raise DataError(f"{said}, with a blank before the column that follows the label; {quotes}, or remove it")


def _begins_blank(cells: Sequence[str]) -> bool:
    return any(cell.strip() and cell[0].isspace() for cell in cells)


def _table_rows(file: Path, notes: list[str]) -> Iterator[tuple[str, str]]:
    """Of a parquet file, as `embed` writes it; rows without a label are passed over."""
    import pyarrow.parquet

    try:
        # Pictures and vectors are neither paths nor labels, whatever their name.
        names = [field.name for field in pyarrow.parquet.read_schema(file) if not _holds_bytes(field.type)]
        columns = named_columns(file, names)
        path_name, label_name = names[columns.path], names[columns.label]
        table = pyarrow.parquet.read_table(file, columns=[path_name, label_name])
    except (OSError, ValueError) as error:  # ArrowInvalid is a ValueError
        raise DataError(f"labels file {file} cannot be read: {error}") from None
    notes += [columns.note] if columns.note else []
    for path, label in zip(table[path_name].to_pylist(), table[label_name].to_pylist()):
        if label is not None:
            yield str(path), str(label)


def _holds_bytes(kind: Any) -> bool:
    """Whether a column of this type holds something else than texts and numbers."""
    from pyarrow import types

    return any(test(kind) for test in (types.is_nested, types.is_binary, types.is_large_binary))
