"""What happened at each step? Append-only text that survives a kill at any byte.

A line counts once its newline is on the disk: one write per line, so a kill tears at most the last one, readers skip a
torn last line, and the next writer cuts it off.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from echoless.errors import UntrustedFile
from echoless.storage.atomic import explained
from echoless.storage.jsonfile import json_bytes, open_untrusted, parse_json, require_object
from echoless.storage.portable import open_flags

LINE_LIMIT = 2**20  # bytes


class Journal:
    """Appends lines to a text file. Opened at the first line; a torn last line of an earlier process is cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def append(self, line: bytes) -> None:
        """One line, in one write; on a full disk the part that got through is taken back."""
        with explained(self.path, needed=len(line)):
            descriptor = self._open()
            start = os.lseek(descriptor, 0, os.SEEK_END)
            try:
                _write_all(descriptor, line)
            except OSError:
                os.ftruncate(descriptor, start)
                raise

    def cut(self, end: int) -> None:
        """Drop everything from byte `end` on."""
        with explained(self.path):
            if self.path.exists():
                os.ftruncate(self._open(), end)

    def sync(self) -> None:
        """Force what was appended to the disk."""
        if self._descriptor is not None:
            with explained(self.path):
                os.fsync(self._descriptor)

    def close(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            self._descriptor = os.open(self.path, open_flags("RDWR", "CREAT", "APPEND", "NOFOLLOW"), 0o666)
            os.ftruncate(self._descriptor, _end_of_last_line(self._descriptor))
        return self._descriptor


class MetricsJournal(Journal):
    """`metrics.jsonl`: one JSON object per line, with a "step" that only rises."""

    def record(self, values: Mapping[str, Any]) -> None:
        """Append one record. A number that is not finite is written as null: JSON has no other word for it."""
        self.append(json_bytes({key: _finite(value) for key, value in values.items()}, self.path, indent=None))

    def read(self) -> Iterator[dict[str, Any]]:
        """Every complete record, one at a time, however long the file is."""
        return (record for _, record in self._numbered())

    def last_step(self) -> int:
        """That of the newest complete record, read from the end of a file that may be long; 0 without one."""
        if not os.path.lexists(self.path):
            return 0
        with open_untrusted(self.path) as file:
            start = max(0, file.seek(0, os.SEEK_END) - LINE_LIMIT)
            file.seek(start)
            whole = file.read(LINE_LIMIT).rpartition(b"\n")[0]
        return int(self._parse(whole.rpartition(b"\n")[2]).get("step", 0)) if whole else 0

    def truncate_after(self, step: int) -> None:
        """Drop the records of later steps, so that a resumed run writes them once."""
        for start, record in self._numbered():
            if record.get("step", step) > step:
                self.cut(start)
                return

    def _numbered(self) -> Iterator[tuple[int, dict[str, Any]]]:
        if not os.path.lexists(self.path):
            return
        start = 0
        with open_untrusted(self.path) as file:
            while (line := file.readline(LINE_LIMIT + 1)).endswith(b"\n"):
                yield start, self._parse(line)
                start += len(line)
        if len(line) > LINE_LIMIT:
            raise UntrustedFile(f"{self.path} has a line longer than {LINE_LIMIT} bytes")

    def _parse(self, line: bytes) -> dict[str, Any]:
        record = require_object(parse_json(line, self.path), self.path)
        if type(record.get("step", 0)) is not int:
            raise UntrustedFile(f"{self.path} has a record whose step is {str(record['step'])[:20]!r}")
        return record


def _finite(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return value


def _write_all(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _end_of_last_line(descriptor: int) -> int:
    """The offset after the last newline, searched backwards: 0 in a file without one."""
    end = os.lseek(descriptor, 0, os.SEEK_END)
    while end > 0:
        start = max(0, end - 65536)
        if (found := os.pread(descriptor, end - start, start).rfind(b"\n")) >= 0:
            return start + found + 1
        end = start
    return 0
