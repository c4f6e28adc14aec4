"""Where are copies of remote files kept, and for how long? Beside the decoded caches, within the same limit.

A copy is a folder: the file under its own name, and `about.json`, which whoever reads the copy holds, and whose time is
that of the last use. So copies and decoded caches make room for each other (see `eviction`). A folder with the right
name is whole: it is fetched beside its place and renamed.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from echoless.data.cache import in_parallel
from echoless.data.content import digest
from echoless.data.eviction import COPY, LIMIT, cache_limit, make_room
from echoless.data.patience import Watch
from echoless.errors import DataError
from echoless.storage.atomic import create_file, explained, new_folder
from echoless.storage.lock import FileLock, hold_shared

if TYPE_CHECKING:
    from echoless.data.remote import RemoteFile

_REQUESTS = 4  # at a time, of one file
_HELD = 8  # copies that this process keeps from being removed; the others make way for whatever needs their room


class _Copy:
    """A copy that nobody removes as long as this object exists."""

    def __init__(self, folder: Path, name: str) -> None:
        """OSError if it is not there, or about to go."""
        hold_shared(folder / "about.json", self)
        self.path = folder / name
        self.size = self.path.stat().st_size
        with suppress(OSError):  # a copy of somebody else
            os.utime(folder / "about.json")


class Copies:
    """Those of one data set. `fits`: whether all of its files have room together."""

    def __init__(self, root: Path, watch: Watch) -> None:
        self.root, self.watch = root, watch
        with explained(root):
            root.mkdir(parents=True, exist_ok=True)
        self._limit = cache_limit(root)
        self.fits = True
        self._held: OrderedDict[str, _Copy] = OrderedDict()
        self._lock = threading.RLock()

    def plan(self, files: list[RemoteFile]) -> None:
        """Decides whether all of them have room, and says so if they do not."""
        needed = sum(file.size for file in files)
        missing = sum(file.size for file in files if not self._folder(file).is_dir())
        free = shutil.disk_usage(self.root).free
        self.fits = needed <= self._limit and missing <= free / 2
        largest = max(files, key=lambda file: file.size)
        if largest.size > self._limit:
            raise DataError(
                f"{largest} has {largest.size:,} bytes, more than the {self._limit:,} that all caches may take "
                f"({LIMIT})"
            )
        if not self.fits:
            self.watch.say(
                f"no copies: {needed:,} bytes are more than there is room for (limit {self._limit:,}, {LIMIT}; "
                f"{free:,} free); images are read from afar, which is slow in random order"
            )

    def find(self, file: RemoteFile) -> Path | None:
        """The copy, if there is one. It stays until this process has read several others."""
        key = self._folder(file).name
        with self._lock:
            if key in self._held and not self._held[key].path.exists():  # deleted by hand
                del self._held[key]
            if key not in self._held:
                try:
                    copy = _Copy(self._folder(file), file.name)
                except OSError:
                    return None
                self._let_go(copy.size)
                self._held[key] = copy
            self._held.move_to_end(key)
            return self._held[key].path

    def fetch(self, file: RemoteFile) -> Path:
        """The copy, made now if there is none; once, whoever asks at the same time."""
        while (found := self.find(file)) is None:
            lock = FileLock(self._folder(file).with_suffix(".lock"))
            try:
                if self.find(file) is None:
                    self._make(file)
            finally:
                lock.remove()
        return found

    def _make(self, file: RemoteFile) -> None:
        """It is held before it has its name, so that nobody removes it before it was used."""
        self._let_go(file.size)
        make_room(self.root, self._limit - file.size)
        with new_folder(self._folder(file), needed=file.size) as folder:
            with create_file(folder / file.name) as sink:
                for block in in_parallel(file.read_block, file.blocks, _REQUESTS):
                    sink.write(block)
                    self.watch.beat()
            file.require_unchanged()
            with create_file(folder / "about.json") as about:
                about.write(json.dumps({"of": str(file), "bytes": file.size}).encode())
            copy = _Copy(folder, file.name)
        copy.path = self._folder(file) / file.name
        with self._lock:
            self._held[copy.path.parent.name] = copy

    def _let_go(self, size: int) -> None:
        """Hold a few, and no more than there is room for beside another of this size; those used last stay."""
        with self._lock:
            while self._held and (len(self._held) >= _HELD or self._held_bytes() + size > self._limit):
                self._held.popitem(last=False)

    def _held_bytes(self) -> int:
        return sum(copy.size for copy in self._held.values())

    def _folder(self, file: RemoteFile) -> Path:
        return self.root / f"{COPY}{digest([json.dumps(file.stamp), file.name])[:32]}"
