"""How is a file that is elsewhere read? Through fsspec; a lost connection is tried again (`patience`).

Credentials are fsspec's business. Whatever is said or kept of an address is without its secrets.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from echoless.config.addresses import without_secrets
from echoless.config.file_systems import protocols_of, require_file_system
from echoless.data.content import Stamp, digest, is_settled
from echoless.data.patience import patiently
from echoless.errors import DataError, RunError
from echoless.storage import write_bytes
from echoless.storage.seal import sealed, unsealed

if TYPE_CHECKING:
    from echoless.data.copies import Copies

BLOCK = 8 * 2**20  # bytes of one request
_CONNECT_SECONDS, _SILENT_SECONDS = 10, 60
_NEAR = 2**20  # bytes between two reads that follow each other
_IN_ORDER = 8  # so many reads that follow each other are worth the whole file
# What a file system may say of a file that changes with its content.
_MARKS = ("ETag", "etag", "Content-MD5", "md5Hash", "crc32c", "checksum", "sha256", "blob_id", "xet_hash", "generation")
_TIMES = ("LastModified", "last_modified", "Last-Modified", "mtime", "updated", "timeModified", "created")


class RemotePath(NamedTuple):
    """A file system of fsspec, and a path in it."""

    system: Any
    path: str
    address: str  # without secrets

    def beside(self, path: str) -> RemotePath:
        """Another path of the same file system, as it lists it."""
        return RemotePath(self.system, path, without_secrets(self.system.unstrip_protocol(path)))


def open_path(address: str) -> RemotePath:
    """Opens the file system; one whose library is missing is refused by name."""
    require_file_system(address)
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(address, **_options(protocols_of(address)[0]))
    except Exception as error:  # bad options: every file system has its own
        said = without_secrets(" ".join(str(error).split()))
        raise DataError(f"data {without_secrets(address)!r} cannot be opened: {said}") from None
    return RemotePath(system, path, without_secrets(address))


def _options(protocol: str) -> dict[str, Any]:
    """Web servers that are silent for a minute are asked again; fsspec's configuration may say otherwise."""
    import fsspec.config

    if protocol not in ("http", "https") or "client_kwargs" in fsspec.config.conf.get(protocol, {}):
        return {}
    import aiohttp

    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_SILENT_SECONDS)
    return {"client_kwargs": {"timeout": timeout}}


class Signs(NamedTuple):
    """What a server says of a file: its size, a mark of its content, and where there is none, its time of change."""

    size: int
    mark: str
    changed_ns: int | None

    @staticmethod
    def of(info: Mapping[str, Any]) -> Signs:
        mark = next((f"{name}={info[name]}" for name in _MARKS if info.get(name)), "")
        return Signs(int(info["size"]), mark, None if mark else _time_ns(info))

    def stamp(self, place: RemotePath) -> Stamp:
        """It changes whenever the file does. Of a file without a mark or a time nothing is remembered: its stamp is of
        this moment."""
        whole = str(place.system.unstrip_protocol(place.path))
        name = self.mark or hashlib.sha256(whole.encode()).hexdigest()
        changed = 0 if self.mark else self.changed_ns or time.time_ns()
        return Stamp(f"{place.address}#{name}", self.size, changed, changed, 0)


def _time_ns(info: Mapping[str, Any]) -> int | None:
    known = next((info[name] for name in _TIMES if info.get(name)), None)
    if isinstance(known, str):
        try:
            known = parsedate_to_datetime(known)
        except ValueError:
            return None
    if isinstance(known, datetime):
        known = known.timestamp()
    return int(known * 1e9) if isinstance(known, int | float) else None


class RemoteFile(os.PathLike[str]):
    """A file elsewhere that can be opened like a path: what is read is a copy on this disk, fetched when it is needed.

    `copies` decides whether there is room for one. Where there is not, single images are read from afar, and a reader
    that goes through the file from front to back gets a copy that makes way for the next.
    """

    def __init__(self, place: RemotePath, info: Mapping[str, Any], copies: Copies) -> None:
        if info.get("size") is None:
            raise DataError(f"{place.address} cannot be read: its server does not say how large it is")
        self._place, self._copies, self._signs = place, copies, Signs.of(info)
        self.size, self.stamp = self._signs.size, self._signs.stamp(place)
        self.name = PurePosixPath(without_secrets(place.path)).name
        self.suffix = PurePosixPath(self.name).suffix
        self._end, self._in_order = -1, 0

    def __str__(self) -> str:
        return self._place.address

    def __fspath__(self) -> str:
        return str(self._copies.fetch(self))

    def stat(self) -> SimpleNamespace:
        return SimpleNamespace(st_size=self.size)

    def nearest(self) -> Path | None:
        """The copy, if there is one, or if there is room for copies of all files."""
        return self._copies.find(self) or (self._copies.fetch(self) if self._copies.fits else None)

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The copy, or the file itself."""
        while (path := self.nearest()) is not None:
            with suppress(FileNotFoundError):  # another process needed its room just now
                return path.open("rb")
        return FromAfar(self)

    def read(self, offset: int, size: int) -> bytes:
        """A part of it; shorter where the file ends. Who reads from front to back reads a copy."""
        end = min(offset + size, self.size)
        self._in_order = self._in_order + 1 if 0 <= offset - self._end <= _NEAR else 0
        self._end = end
        while self._in_order >= _IN_ORDER:
            with suppress(FileNotFoundError), self._copies.fetch(self).open("rb") as file:
                file.seek(offset)
                return file.read(size)
        return self.read_from_afar(offset, end)

    def read_from_afar(self, offset: int, end: int) -> bytes:
        return patiently(str(self), lambda: self._ask(offset, end), self._copies.watch) if end > offset else b""

    @property
    def blocks(self) -> range:
        """Where each request begins that together fetch all of it."""
        return range(0, self.size, BLOCK)

    def read_block(self, offset: int) -> bytes:
        """One request's worth of it, from afar."""
        return self.read_from_afar(offset, min(offset + BLOCK, self.size))

    def remembered(self, kind: str, make: Callable[[], bytes]) -> bytes:
        """What `make` returned when this file was read first: it is scanned once, and then its copy may go."""
        kept = self._copies.root / "index" / digest([json.dumps(self.stamp), kind])[:32]
        with suppress(OSError):
            if (known := unsealed(kept.read_bytes())) is not None:
                return known
        began_ns, made = time.time_ns(), make()
        if is_settled(self.stamp, began_ns):
            with suppress(OSError, RunError):  # a full disk is no error here
                kept.parent.mkdir(parents=True, exist_ok=True)
                write_bytes(kept, sealed(made))
        return made

    def require_unchanged(self) -> None:
        system = self._place.system
        system.invalidate_cache()
        now = patiently(str(self), lambda: system.info(self._place.path), self._copies.watch)
        if Signs.of(now) != self._signs:
            raise DataError(f"{self} changed while it was read; try again")

    def _ask(self, offset: int, end: int) -> bytes:
        data: bytes = self._place.system.cat_file(self._place.path, start=offset, end=end)
        if len(data) == self.size > end - offset:  # a server that knows no parts sends everything
            data = data[offset:end]
        if len(data) != end - offset:
            raise OSError(f"{len(data)} bytes came instead of {end - offset}")
        return data


class FromAfar(io.RawIOBase, IO[bytes]):  # type: ignore[misc]
    """A remote file as an open file."""

    def __init__(self, file: RemoteFile) -> None:
        self._file, self._place = file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = max(offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._file.size}[whence], 0)
        return self._place

    def tell(self) -> int:
        return self._place

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._place, self._file.size if size is None or size < 0 else size)
        self._place += len(data)
        return data
