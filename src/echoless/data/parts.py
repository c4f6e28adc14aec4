"""How do several processes share long work on many images? In parts, through a folder that all of them see.

Whoever is free claims the next part by a lock that ends with its process, and leaves a record, `00012.json`, when the
part is done; beside it lies what was made, `00012.bin`. Nobody waits inside a collective: processes that find nothing
to do wait for records. A part that a dead process had claimed is free again, and a run that is started again finds the
parts that are done.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from echoless.errors import Busy, EcholessError
from echoless.runtime import Share
from echoless.storage.atomic import clear_leftovers, explained, temporary_beside
from echoless.storage.jsonfile import read_json_object, write_json
from echoless.storage.lock import FileLock

Tell = Callable[[int], None]  # how many units of the part are done
Work = Callable[[int, int, Path, Tell], dict[str, Any]]  # (first, last, file to fill, tell) -> record
Told = Callable[[int, int], None]  # (units done by all processes, units in all)
Valid = Callable[[int, dict[str, Any]], bool]  # (number of a part, its record)

FOLDER = "parts-"  # how the names of these folders begin
_MOST = 512  # parts, unless they would become too large
_SMALLEST, _LARGEST = 64, 16384  # units of a part; more would make a large record
_PAUSE = 0.3  # seconds between two looks for the records of others
_ABANDONED_SECONDS = 24 * 3600


def _always(number: int, record: dict[str, Any]) -> bool:
    return True


class SharedParts:
    """`units` pieces of work, in parts of neighbours."""

    def __init__(self, folder: Path, units: int, share: Share, *, smallest: int = _SMALLEST) -> None:
        self.folder, self.units, self._share = folder, units, share
        self._valid: Valid = _always
        self._size = min(max(smallest, -(-units // _MOST)), _LARGEST)

    def __len__(self) -> int:
        return -(-self.units // self._size)

    def span(self, number: int) -> tuple[int, int]:
        """The first unit of a part, and the first of the next."""
        return number * self._size, min((number + 1) * self._size, self.units)

    def file(self, number: int) -> Path:
        return self.folder / f"{number:05d}.bin"

    def number(self, unit: int) -> int:
        """The part that a unit is in."""
        return unit // self._size

    def missing(self) -> list[int]:
        """The parts that are not done yet."""
        return [number for number in range(len(self)) if not self._record(number).exists()]

    def record(self, number: int) -> dict[str, Any] | None:
        """What the process that did a part left."""
        if not self._record(number).exists():
            return None
        try:
            return read_json_object(self._record(number))
        except EcholessError:
            return None

    def finish(self, work: Work, told: Told | None = None, valid: Valid = _always) -> list[dict[str, Any]]:
        """The records of all parts, in order. `work` does those that nobody has done, and nobody else is doing.

        valid: whether a record still counts; if not, the part is done again.
        """
        self._valid = valid
        with explained(self.folder):
            self.folder.mkdir(parents=True, exist_ok=True)
        clear_leftovers(self.folder)
        records: dict[int, dict[str, Any]] = {}
        while missing := [number for number in self._order() if number not in records]:
            before = len(records)
            for number in missing:
                record = self._read(number)
                if record is None:
                    record = self._claim(number, work, told, records)
                if record is not None:
                    records[number] = record
            self._tell(told, records)
            if len(records) == before:
                time.sleep(_PAUSE)
        return [records[number] for number in range(len(self))]

    def claim(self, name: str) -> FileLock | None:
        """A lock on something in the folder; None while another process has it."""
        try:
            lock = FileLock(self.folder / f"{name}.lock", busy="claimed")
        except Busy:
            return None
        if lock.held or self._share.index == 0:
            return lock
        return None  # a disk without locks: only the first of the processes may

    def forget(self, number: int) -> None:
        """A part has to be done again."""
        self._record(number).unlink(missing_ok=True)
        self.file(number).unlink(missing_ok=True)

    def discard_files(self) -> None:
        """What was made is kept elsewhere; other processes may still need the records."""
        for number in range(len(self)):
            self.file(number).unlink(missing_ok=True)

    def _order(self) -> list[int]:
        """Each process begins with the parts of its own share, so that it reads neighbours."""
        first = self._share.index * len(self) // self._share.count
        return [*range(first, len(self)), *range(first)]

    def _claim(
        self, number: int, work: Work, told: Told | None, records: dict[int, dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Do a part, unless another process does."""
        try:
            lock = FileLock(self.folder / f"{number:05d}.lock", busy="claimed")
        except Busy:
            return None
        with lock:
            if not lock.held and number % self._share.count != self._share.index:
                return None  # a disk without locks: parts are dealt out
            record = self._read(number)  # by a process that was just ready
            if record is None:
                clear_leftovers(self.folder, self.file(number).name, locked=lock.held)
                record = self._do(number, work, lambda done: self._tell(told, records, done))
            lock.remove()
            return record

    def _do(self, number: int, work: Work, tell: Tell) -> dict[str, Any]:
        unfinished = temporary_beside(self.file(number))
        with explained(self.file(number)):
            try:
                record = work(*self.span(number), unfinished, tell)
                if unfinished.exists():
                    with unfinished.open("rb+") as file:
                        os.fsync(file.fileno())
                    unfinished.replace(self.file(number))
            finally:
                unfinished.unlink(missing_ok=True)
        write_json(self._record(number), record)
        return record

    def _record(self, number: int) -> Path:
        return self.folder / f"{number:05d}.json"

    def _read(self, number: int) -> dict[str, Any] | None:
        record = self.record(number)
        return record if record is not None and self._valid(number, record) else None

    def _tell(self, told: Told | None, records: dict[int, dict[str, Any]], more: int = 0) -> None:
        if told is not None:
            done = sum(last - first for first, last in map(self.span, records))
            told(min(done + more, self.units), self.units)


def remove_abandoned(root: Path) -> None:
    """Delete the parts that nobody has worked on for a day."""
    for folder in root.glob(f"{FOLDER}*"):
        with suppress(OSError):
            newest = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
            if time.time() - newest > _ABANDONED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
