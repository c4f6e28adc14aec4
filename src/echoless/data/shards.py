"""How are images read from tar files? In the WebDataset convention, or as ImageNet-1k is distributed.

Members `key.jpg`, `key.cls`, `key.json` belong to one sample. A member `NAME.tar` holds the images of class NAME, as in
ILSVRC2012_img_train.tar. The headers are scanned once; an image is then one read at a known offset. Only regular
members count: links, devices and pickles are passed over, and nothing is extracted.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from array import array
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import IO, Any, NamedTuple

from echoless.config.addresses import is_remote
from echoless.data.content import stamp
from echoless.data.labels import known_labels
from echoless.data.paths import PathColumn
from echoless.data.remote import RemoteFile
from echoless.data.sources import IMAGE_SUFFIXES, LARGEST_FILE, read_in_order
from echoless.errors import DataError, NoImages

_LONGEST_LABEL = 2**20  # bytes of a .cls or .json member that are worth reading
_AT_ONCE = 65_536  # rows of an index that are Python objects at a time
_WILDCARDS = frozenset("*?[{")
_LABEL_KEYS = ("label", "cls", "class")


class _Member(NamedTuple):
    shard: int
    offset: int
    size: int


class TarSource:
    """The images of one or more tar files, in the order of the files and their members."""

    def __init__(self, files: Sequence[Path | RemoteFile]) -> None:
        self._files = files
        self.stamps = [stamp(file) for file in files]
        self._members = array("q")  # shard, offset and size of one after the other
        labels: list[int | str | None] = []
        self.paths = PathColumn.of(self._found(labels))
        if not len(self.paths):
            raise NoImages(
                f"{files[0]} holds no image; looked for members ending in {', '.join(sorted(IMAGE_SUFFIXES))}"
            )
        self.labels = known_labels(labels)
        self.class_names: list[str] | None = None

    def _found(self, labels: list[int | str | None]) -> Iterator[str]:
        """The path of every image; its place and its label are noted on the way."""
        for shard, file in enumerate(self._files):
            for path, member, label in _scan(shard, file) if isinstance(file, Path) else _index(shard, file):
                self._members.extend(member)
                labels.append(label)
                yield f"{file.name}/{path}" if len(self._files) > 1 else path

    def read(self, index: int) -> bytes:
        shard, offset, size = self._members[3 * index : 3 * index + 3]
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


Sample = tuple[str, _Member, int | str | None]  # path, place, label


def _index(shard: int, file: RemoteFile) -> Iterator[Sample]:
    """`_scan`, once for every content of the file."""
    import pyarrow as pa

    def make() -> bytes:
        rows = [(path, member.offset, member.size, json.dumps(label)) for path, member, label in _scan(shard, file)]
        paths, *others = zip(*rows) if rows else ((), (), (), ())
        encoded = [path.encode("utf-8", "surrogatepass") for path in paths]
        return as_bytes(pa.table([encoded, *others], names=["path", "offset", "size", "label"]))

    for batch in pa.ipc.open_file(pa.py_buffer(file.remembered("tar", make))).read_all().to_batches(_AT_ONCE):
        for path, offset, size, label in zip(*(column.to_pylist() for column in batch.columns)):
            yield path.decode("utf-8", "surrogatepass"), _Member(shard, offset, size), json.loads(label)


def as_bytes(table: Any) -> bytes:
    """An Arrow table as a file in memory."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def _scan(shard: int, file: Path | RemoteFile) -> Iterator[Sample]:
    """Every sample that has an image."""
    length = file.stat().st_size
    with _open(file) as tar:
        yield from _samples(tar, file, shard, start=0, length=length)


def _samples(tar: tarfile.TarFile, file: Path | RemoteFile, shard: int, *, start: int, length: int) -> Iterator[Sample]:
    """Those of a tar that begins at byte `start` of the file, which has `length` bytes."""
    images: dict[str, tuple[str, _Member]] = {}
    labels: dict[str, int | str] = {}
    for member in _members(tar, file):
        key, _, suffix = _split(member.name)
        suffix, place = f".{suffix.lower()}", start + member.offset_data
        if not member.isreg() or member.issparse():
            continue
        if suffix in IMAGE_SUFFIXES:
            size = max(min(member.size, length - place + 1), 0)
            images.setdefault(key, (member.name, _Member(shard, place, size)))
        elif suffix in (".cls", ".json") and member.size <= _LONGEST_LABEL:
            label = _label(tar, member, suffix)
            if label is not None:
                labels[key] = label
        elif suffix == ".tar" and start == 0:  # a class; tars do not nest deeper
            yield from _class_samples(file, shard, key, place, min(member.size, max(length - place, 0)), length)
    for key, (path, place_of) in images.items():
        yield path, place_of, labels.get(key)


def _class_samples(
    file: Path | RemoteFile, shard: int, name: str, start: int, size: int, length: int
) -> Iterator[Sample]:
    """The images of a tar inside the file, all of class `name`, under the paths that they have when extracted."""
    with file.open("rb") as opened, _open_inner(_Window(opened, start, size), file, name) as inner:
        for path, place, label in _samples(inner, file, shard, start=start, length=length):
            yield f"{name}/{path}", place, Path(name).name if label is None else label


class _Window(io.RawIOBase):
    """A part of an open file as a file."""

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._start, self._size, self._place = file, start, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = max(base + offset, 0)
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._place, 0)
        self._file.seek(self._start + self._place)
        data = self._file.read(left if size < 0 else min(size, left))
        self._place += len(data)
        return data


def _open_inner(window: _Window, file: Path | RemoteFile, name: str) -> tarfile.TarFile:
    try:
        return tarfile.open(fileobj=window, mode="r:")
    except (tarfile.TarError, OSError, ValueError) as error:
        raise DataError(f"{name}.tar in {file} is not a readable uncompressed tar file: {error}") from None


def _open(file: Path | RemoteFile) -> tarfile.TarFile:
    try:
        return tarfile.open(file, "r:")  # uncompressed only: a compressed archive has no random access
    except (tarfile.TarError, OSError, ValueError) as error:
        raise DataError(f"{file} is not a readable uncompressed tar file: {error}") from None


def _members(tar: tarfile.TarFile, file: Path | RemoteFile) -> Iterator[tarfile.TarInfo]:
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
    return sorted({found for plain in expand_braces(pattern) for found in _glob(Path(plain))})


def fixed_part(pattern: str) -> Path:
    """The folder that all files of a pattern are in: what stands before its first wildcard."""
    parts = Path(pattern).parts
    fixed = next((i for i, part in enumerate(parts) if _WILDCARDS & set(part)), len(parts) - 1)
    return Path(*parts[:fixed])


def is_local_pattern(data: str) -> bool:
    """Whether it stands for several files of this machine. A file whose own name has such letters is no pattern."""
    return bool(_WILDCARDS & set(data)) and not is_remote(data) and not Path(data).exists()


def absolute_pattern(pattern: str) -> Path:
    """The same files, named from the root of the file system."""
    fixed = fixed_part(pattern)
    return fixed.resolve() / Path(pattern).relative_to(fixed)


def _glob(pattern: Path) -> Iterator[Path]:
    root = Path(pattern.anchor)  # "." for a relative pattern
    return root.glob(str(pattern.relative_to(pattern.anchor)))


def expand_braces(pattern: str) -> list[str]:
    pieces = re.split(r"\{([^{}]*)\}", pattern)
    choices = [[piece] if i % 2 == 0 else _alternatives(piece) for i, piece in enumerate(pieces)]
    return ["".join(choice) for choice in product(*choices)]


def _alternatives(inside: str) -> list[str]:
    span = re.fullmatch(r"(\d+)\.\.(\d+)", inside)
    if span is None:
        return inside.split(",")
    low, high = span.groups()
    return [str(number).zfill(len(low)) for number in range(int(low), int(high) + 1)]
