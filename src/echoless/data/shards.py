"""How are images read from tar shards in the WebDataset convention?

Members `key.jpg`, `key.cls`, `key.json` belong to one sample. The headers are scanned once; an image is then one read
at a known offset. Only regular members count: links, devices and pickles are passed over, and nothing is extracted.
"""

from __future__ import annotations

import json
import re
import tarfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

from echoless.data.content import stamp
from echoless.data.sources import IMAGE_SUFFIXES, LARGEST_FILE, read_in_order
from echoless.errors import DataError

_LONGEST_LABEL = 2**20  # bytes of a .cls or .json member that are worth reading
_LABEL_KEYS = ("label", "cls", "class")


class _Member(NamedTuple):
    shard: int
    offset: int
    size: int


class TarSource:
    """The images of one or more tar files, in the order of the files and their members."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self.stamps = [stamp(file) for file in files]
        self._members: list[_Member] = []
        self.paths: list[str] = []
        labels: list[int | str | None] = []
        for shard, file in enumerate(files):
            for path, member, label in _scan(shard, file):
                self.paths.append(f"{file.name}/{path}" if len(files) > 1 else path)
                self._members.append(member)
                labels.append(label)
        if not self.paths:
            raise DataError(
                f"{files[0]} holds no image; looked for members ending in {', '.join(sorted(IMAGE_SUFFIXES))}"
            )
        self.labels = [label for label in labels if label is not None] if None not in labels else None
        self.class_names: list[str] | None = None

    def read(self, index: int) -> bytes:
        shard, offset, size = self._members[index]
        if size > LARGEST_FILE:
            raise OSError(f"the member has {size:,} bytes; allowed: {LARGEST_FILE:,}")
        # Reading stops where the file does: an announced size allocates nothing.
        with self._files[shard].open("rb") as file:
            file.seek(offset)
            data = file.read(size)
        if len(data) < size:
            raise OSError(f"{self._files[shard].name} ends inside this member")
        return data

    def chunks(self) -> Iterator[tuple[int, list[bytes | OSError]]]:
        return read_in_order(self)


def _scan(shard: int, file: Path) -> Iterator[tuple[str, _Member, int | str | None]]:
    """(path, place, label) of every sample that has an image."""
    images: dict[str, tuple[str, _Member]] = {}
    labels: dict[str, int | str] = {}
    length = file.stat().st_size
    with _open(file) as tar:
        for member in _members(tar, file):
            key, _, suffix = _split(member.name)
            suffix = f".{suffix.lower()}"
            if not member.isreg() or member.issparse():
                continue
            if suffix in IMAGE_SUFFIXES:
                size = max(min(member.size, length - member.offset_data + 1), 0)
                images.setdefault(key, (member.name, _Member(shard, member.offset_data, size)))
            elif suffix in (".cls", ".json") and member.size <= _LONGEST_LABEL:
                label = _label(tar, member, suffix)
                if label is not None:
                    labels[key] = label
    for key, (path, place) in images.items():
        yield path, place, labels.get(key)


def _open(file: Path) -> tarfile.TarFile:
    try:
        return tarfile.open(file, "r:")  # uncompressed only: a compressed archive has no random access
    except (tarfile.TarError, OSError, ValueError) as error:
        raise DataError(f"{file} is not a readable uncompressed tar file: {error}") from None


def _members(tar: tarfile.TarFile, file: Path) -> Iterator[tarfile.TarInfo]:
    found = False
    try:
        for member in tar:
            found = True
            yield member
    # A shard cut short keeps the samples before the cut. Hostile headers raise more than TarError.
    except (tarfile.TarError, OSError, ValueError, KeyError, EOFError) as error:
        if not found:
            raise DataError(f"{file} is not a readable tar file: {error}") from None


def _split(name: str) -> tuple[str, str, str]:
    folder, slash, base = name.rpartition("/")
    key, dot, suffix = base.partition(".")
    return folder + slash + key, dot, suffix


def _label(tar: tarfile.TarFile, member: tarfile.TarInfo, suffix: str) -> int | str | None:
    file = tar.extractfile(member)
    text = file.read().decode("utf-8", "replace").strip() if file else ""
    if suffix == ".cls":
        return _number_or_text(text)
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    values = [record[key] for key in _LABEL_KEYS if key in record] if isinstance(record, dict) else []
    return values[0] if values and isinstance(values[0], int | str) and not isinstance(values[0], bool) else None


def _number_or_text(text: str) -> int | str | None:
    return int(text) if re.fullmatch(r"-?\d{1,18}", text) else text or None


def expand(pattern: str) -> list[Path]:
    """Files that match a pattern with {000..012}, {a,b}, *, ? or [...], sorted."""
    return sorted({found for plain in _expand_braces(pattern) for found in _glob(Path(plain))})


def _glob(pattern: Path) -> Iterator[Path]:
    root = Path(pattern.anchor)  # "." for a relative pattern
    return root.glob(str(pattern.relative_to(pattern.anchor)))


def _expand_braces(pattern: str) -> list[str]:
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices = [[piece] if i % 2 == 0 else _alternatives(piece) for i, piece in enumerate(pieces)]
    return ["".join(choice) for choice in product(*choices)]


def _alternatives(inside: str) -> list[str]:
    span = re.fullmatch(r"(\d+)\.\.(\d+)", inside)
    if span is None:
        return inside.split(",")
    low, high = span.groups()
    return [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
