"""Which classes of a set are used? A list of names, one per line: ImageNet-100 is such a list of ImageNet-1k."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from echoless.data.content import Stamp
from echoless.data.paths import ChosenPaths
from echoless.data.sources import FolderSource, ImageSource, read_in_order
from echoless.errors import DataError

LISTS = Path(__file__).parent / "lists"  # lists that come with the package
IMAGENET100 = "imagenet100"
_LARGEST = 2**24  # bytes of a list


def read_class_list(given: str | Path) -> tuple[str, ...]:
    """The names in a file, or of `imagenet100`. Empty lines and lines that begin with # do not count."""
    file = LISTS / f"{IMAGENET100}.txt" if str(given) == IMAGENET100 else Path(given)
    names = list_lines(file, "classes", f"a file with one class name per line, or {IMAGENET100}")
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise DataError(f"classes file {file} names {twice!r} twice")
    return tuple(names)


def list_lines(file: Path, option: str, allowed: str) -> list[str]:
    """The lines of a small text file that say something."""
    if not file.is_file() or file.stat().st_size > _LARGEST:
        found = "does not exist" if not file.exists() else "is no text file of a list's size"
        raise DataError(f"{option} is {str(file)!r}, which {found}; allowed: {allowed}")
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise DataError(f"{option} is {str(file)!r}, which is no text; allowed: {allowed}") from None
    lines = [line for line in lines if line and not line.startswith("#")]
    if not lines:
        raise DataError(f"{option} is {str(file)!r}, which is empty; allowed: {allowed}")
    return lines


def select_classes(
    source: ImageSource, names: Sequence[str], labels: Sequence[int | str | None] | None = None
) -> SelectedSource:
    """The images of the named classes. `labels`: those of a labels file, where the source's own do not count."""
    known = _names_of(source) if labels is None else ["" if label is None else str(label) for label in labels]
    if known is None:
        raise DataError("classes are given, but the images have no labels; give sub-folders, or --labels FILE")
    missing = sorted(set(names) - set(known))
    if missing:
        raise DataError(f"the data has no images of {len(missing)} of {len(names)} classes, first {missing[0]!r}")
    wanted = set(names)
    return SelectedSource(source, [index for index, name in enumerate(known) if name in wanted], known)


def _names_of(source: ImageSource) -> list[str] | None:
    if source.labels is None:
        return None
    return ["" if label is None else _name_of(label, source.class_names) for label in source.labels]


def _name_of(label: int | str, names: Sequence[str] | None) -> str:
    return names[label] if names and isinstance(label, int) and 0 <= label < len(names) else str(label)


class SelectedSource:
    """Some of the images of a source, under their own paths; labels are the names of their classes."""

    class_names: Sequence[str] | None = None

    def __init__(self, source: ImageSource, ids: Sequence[int], names: Sequence[str]) -> None:
        self.whole, self._ids = source, ids
        self.paths = ChosenPaths(source.paths, ids)
        self.labels: list[int | str | None] = [names[index] for index in ids]
        by_image = len(source.stamps) == len(source.paths)  # of a folder; shards have one for each file
        self.stamps: Sequence[Stamp] = [source.stamps[index] for index in ids] if by_image else source.stamps

    @property
    def selection(self) -> str:
        """Which images these are of the files that the stamps name."""
        return hashlib.sha256("\0".join(self.paths).encode(errors="surrogateescape")).hexdigest()

    def read(self, index: int) -> bytes:
        return self.whole.read(self._ids[index])

    def chunks(self) -> Iterator[tuple[int, list[bytes | OSError]]]:
        return read_in_order(self)


def label_source(source: ImageSource) -> str:
    """Where its labels come from, for the protocol of a number."""
    whole = source.whole if isinstance(source, SelectedSource) else source
    return "sub-folders" if isinstance(whole, FolderSource) else "the data set"


def label_note(source: ImageSource) -> str:
    """Why the sub-folders of a folder are not its classes, where they might have been."""
    return source.label_note if isinstance(source, FolderSource) else ""


def folder_of(source: ImageSource) -> Path | None:
    """Where its files are; None for archives."""
    whole = source.whole if isinstance(source, SelectedSource) else source
    return whole.root if isinstance(whole, FolderSource) else None
