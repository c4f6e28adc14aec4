"""Which image does a row of a file of labels name? And where it names none: what would make it name one?"""

from __future__ import annotations

import os
import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

_ABSOLUTE = re.compile(r"/|[a-z]:/", re.IGNORECASE)  # on Linux, on a server, or on a drive of Windows


class ImagePaths:
    """The paths of the images, and the other ways in which a row may write them. folder: where they begin, if they
    are files."""

    def __init__(self, paths: Sequence[str], folder: Path | None) -> None:
        self.paths = frozenset(paths)
        parts = folder.absolute().parts if folder is not None else ()
        self._before = [f"{Path(*parts[first:]).as_posix()}/" for first in range(len(parts))]
        self._folder = "" if folder is None else os.path.basename(os.path.normpath(folder.absolute()))  # noqa: PTH119

    def image_of(self, row: str) -> str:
        """The image that a row names: with the folder before it, `\\` for `/`, or accents as macOS writes them. The row
        itself where there is none."""
        return self._found(row) or row

    def has(self, row: str) -> bool:
        return self._found(row) is not None

    def follow(self, rows: Collection[str]) -> str:
        """Where no row names an image, as it is the path on another machine: from now on, the place that all of them
        give to the folder is that of the folder here. Returns this place; empty where there is not exactly one."""
        if not self._folder or any(map(self.has, rows)):
            return ""
        places = {place for row in rows for place in self._places(_canonical(row))}
        if len(places) != 1:
            return ""
        self._before += places
        return places.pop()

    def hint(self, rows: Collection[str]) -> str:
        """What would make images of these rows, which name none; empty where nothing would."""
        inside = (self._by_canonical.get(end) for row in rows for end in _ends(_canonical(row)))
        if shorter := next(filter(None, inside), None):
            return f"paths begin inside the folder, as {shown(shorter)}"
        by_case = {path.casefold(): path for path in self.paths}
        if other := next(filter(None, (by_case.get(row.casefold()) for row in rows)), None):
            return f"upper and lower case differ, as in {shown(other)}"
        return self._hint_by_name(rows)

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

    def _places(self, path: str) -> Iterator[str]:
        """`D:/Daten/photos/` of `D:/Daten/photos/a/1.jpg`, where the folder is `photos` and has the image `a/1.jpg`."""
        before, name = "", f"{_canonical(self._folder)}/"
        for part in path.split("/")[:-1] if _ABSOLUTE.match(path) else ():
            before += f"{part}/"
            if before.endswith(f"/{name}") and self._by_canonical.get(path[len(before) :]):
                yield before

    def _hint_by_name(self, rows: Collection[str]) -> str:
        """Names without their folders are no paths: two folders may have one image each of that name."""
        count = Counter(_name(path) for path in self.paths)
        name = next((name for row in rows if (name := _name(row)) in count), None)
        if name is None:
            return ""
        folder = shown(min(path for path in self.paths if _name(path) == name).rpartition("/")[0] + "/")
        where = f"once, in {folder}" if count[name] == 1 else f"{count[name]} times, as in {folder}"
        return f"{shown(name)} is found {where}, which the path must name"


def shown(path: str) -> str:
    """In quotes. A backslash stays one, as it stands in the file."""
    return repr(path).replace("\\\\", "\\")


def _canonical(path: str) -> str:
    """Names from Windows and macOS as Linux has them."""
    plain = unicodedata.normalize("NFC", path.replace("\\", "/"))
    while plain.startswith("./"):
        plain = plain[2:]
    return plain


def _name(path: str) -> str:
    return _canonical(path).rpartition("/")[2]


def _ends(path: str) -> Iterator[str]:
    """Without its first folder, without its first two, ..."""
    parts = path.split("/")
    return ("/".join(parts[first:]) for first in range(1, len(parts)))
