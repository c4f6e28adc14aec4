"""How is a file that is elsewhere read? Through fsspec, patiently: a lost connection is tried again before it counts.

Credentials are fsspec's business. Whatever is said or kept of an address is without its secrets.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import PurePosixPath
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from echoless.config.addresses import without_secrets
from echoless.data.content import Stamp
from echoless.errors import DataError

if TYPE_CHECKING:
    from echoless.data.copies import Copies

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0)  # seconds between attempts
BLOCK = 8 * 2**20  # bytes of one request
_NEAR = 2**20  # bytes between two reads that follow each other
_IN_ORDER = 8  # so many reads that follow each other are worth the whole file
# What a file system may say of a file that changes with its content.
_MARKS = ("ETag", "etag", "Content-MD5", "md5Hash", "crc32c", "checksum", "sha256", "blob_id", "xet_hash", "generation")
_TIMES = ("LastModified", "last_modified", "Last-Modified", "mtime", "updated", "timeModified", "created")
_WAY = {
    "s3": "pip install s3fs",
    "gs": "pip install gcsfs",
    "gcs": "pip install gcsfs",
    "hf": "pip install huggingface_hub",
    "http": "pip install 'echoless[remote]'",
    "https": "pip install 'echoless[remote]'",
}
Answer = TypeVar("Answer")


class Place(NamedTuple):
    """A file system of fsspec, and a path in it."""

    system: Any
    path: str
    address: str  # without secrets

    def beside(self, path: str) -> Place:
        """Another path of the same file system, as it lists it."""
        return Place(self.system, path, without_secrets(self.system.unstrip_protocol(path)))


def place_of(address: str) -> Place:
    """Opens the file system; one whose library is missing is refused by name."""
    try:
        import fsspec
    except ImportError:
        raise DataError(f"{without_secrets(address)} needs fsspec: pip install 'echoless[remote]'") from None
    protocol = re.split("://|::", address)[0].lower()
    try:
        system, path = fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:  # a missing library; a protocol that nobody knows
        way = _WAY.get(protocol, "fsspec.available_protocols() lists what fsspec knows")
        said = without_secrets(" ".join(str(error).split()))
        raise DataError(f"data {without_secrets(address)!r} cannot be opened: {said}; {way}") from None
    return Place(system, path, without_secrets(address))


def patiently(address: str, ask: Callable[[], Answer]) -> Answer:
    """The answer, at the first attempt that succeeds; one sentence if none does."""
    started = time.monotonic()
    for number, pause in enumerate((*PAUSES, None), start=1):
        try:
            return ask()
        except Exception as error:  # every file system has its own
            if _is_final(error) or pause is None:
                tries = "" if _is_final(error) else f" ({number} attempts in {time.monotonic() - started:.0f} s)"
                lost = "" if _is_final(error) else "; nothing is lost, the same command continues"
                raise DataError(f"{address} cannot be read: {_said(error)}{tries}{lost}") from None
            time.sleep(pause)
    raise AssertionError


def _is_final(error: BaseException) -> bool:
    """Whether the answer would be the same again: no such file, no permission. A lost connection is none."""
    cause = error.__cause__
    status = getattr(error, "status", getattr(cause, "status", None))
    if isinstance(status, int):
        return 400 <= status < 500 and status not in (408, 425, 429)
    if isinstance(error, FileNotFoundError) and cause is not None:  # fsspec's word for anything wrong with a web page
        return isinstance(cause, FileNotFoundError) or "aiohttp" not in type(cause).__module__
    return isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError | NotImplementedError)


def _said(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        cause = error.__cause__
        if cause is None or _is_final(error):
            return "there is no such file"
        error = cause
    said = without_secrets(" ".join(str(error).split()))
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def stamp_of(place: Place, info: Mapping[str, Any]) -> Stamp:
    """What changes whenever the file does, by what its server says: a mark of the content, or else its time of change.

    Where it says neither, the stamp is of this moment: nothing is remembered of such a file.
    """
    mark = next((f"{name}={info[name]}" for name in _MARKS if info.get(name)), "")
    changed = 0 if mark else _time_ns(info)
    name = mark or hashlib.sha256(f"{place.system.unstrip_protocol(place.path)}".encode()).hexdigest()
    return Stamp(f"{place.address}#{name}", int(info["size"]), changed, changed, 0)


def _time_ns(info: Mapping[str, Any]) -> int:
    known = next((info[name] for name in _TIMES if info.get(name)), None)
    if isinstance(known, str):
        try:
            known = parsedate_to_datetime(known)
        except ValueError:
            known = None
    if isinstance(known, datetime):
        known = known.timestamp()
    return int(known * 1e9) if isinstance(known, int | float) else time.time_ns()


class RemoteFile(os.PathLike[str]):
    """A file elsewhere that can be opened like a path: what is read is a copy on this disk, fetched when it is needed.

    `copies` decides whether there is room for one. Where there is not, single images are read from afar, and a reader
    that goes through the file from front to back gets a copy that makes way for the next.
    """

    def __init__(self, place: Place, info: Mapping[str, Any], copies: Copies) -> None:
        if info.get("size") is None:
            raise DataError(f"{place.address} cannot be read: its server does not say how large it is")
        self._place, self._copies = place, copies
        self.size = int(info["size"])
        self.stamp = stamp_of(place, info)
        self.name = PurePosixPath(without_secrets(place.path)).name
        self.suffix = PurePosixPath(self.name).suffix
        self._end, self._in_order = -1, 0

    def __str__(self) -> str:
        return self._place.address

    def __fspath__(self) -> str:
        return str(self._copies.fetch(self))

    def open(self, mode: str = "rb") -> IO[bytes]:
        """The copy, if there is one or there is room for one; else the file itself, from afar."""
        path = self._copies.find(self) or (self._copies.fetch(self) if self._copies.fits else None)
        if path is not None:
            return path.open("rb")
        return io.BufferedReader(_FromAfar(self), 1) if mode == "rb" else self._refuse(mode)

    def read(self, offset: int, size: int) -> bytes:
        """A part of it, from afar; shorter where the file ends."""
        end = min(offset + size, self.size)
        if end <= offset:
            return b""
        data = patiently(str(self), lambda: self._ask(offset, end))
        return data

    def follows(self, offset: int, end: int) -> bool:
        """Whether somebody is reading from front to back."""
        self._in_order = self._in_order + 1 if 0 <= offset - self._end <= _NEAR else 0
        self._end = end
        return self._in_order >= _IN_ORDER

    def require_unchanged(self) -> None:
        info = patiently(str(self), lambda: self._place.system.info(self._place.path, refresh=True))
        now = stamp_of(self._place, info)
        if now._replace(modified_ns=0, changed_ns=0) != self.stamp._replace(modified_ns=0, changed_ns=0):
            raise DataError(f"{self} changed while it was read; try again")

    def _ask(self, offset: int, end: int) -> bytes:
        data: bytes = self._place.system.cat_file(self._place.path, start=offset, end=end)
        if len(data) == self.size > end - offset:  # a server that knows no parts sends everything
            data = data[offset:end]
        if len(data) != end - offset:
            raise OSError(f"{len(data)} bytes came instead of {end - offset}")
        return data

    def _refuse(self, mode: str) -> IO[bytes]:
        raise ValueError(f"mode is {mode!r}; allowed: 'rb'")
