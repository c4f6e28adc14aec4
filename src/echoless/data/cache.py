"""Where do decoded pixels stay between epochs and runs, and why can no crash spoil them?

A cache is a folder named by its key: `pixels.bin` (every image, end to end, in the order of `layout`), `index.npy`
(offset, height, width, CRC-32 of each; height 0 if it is bad) and `about.json`. It is written beside its place,
flushed, and renamed: a folder with the right name is complete. Each image is checked when it is first used, because a
faulty disk may change or zero what was written. Two builders may work at once; the one that comes second throws its
copy away. Each builder holds a lock that dies with it, so that the next one knows debris from work in progress. Whoever
reads a cache holds its `about.json`, whose time is that of the last use (see `eviction`).
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from echoless.data.images import BadSample, Fetched
from echoless.data.layout import LARGEST_PLANAR, from_order, in_order
from echoless.data.resample import Array
from echoless.errors import DataError
from echoless.storage.atomic import sync_folder
from echoless.storage.checksum import crc32
from echoless.storage.lock import hold_shared, lock_exclusively
from echoless.storage.mapped import Gathered, in_a_file
from echoless.storage.portable import open_flags

VERSION = 3
_SETTLING_SECONDS = 60  # a folder this young may not have its lock yet
LEFTOVER = ".building-"  # how the name of a folder begins that is no cache yet, or no more
_WRITTEN_AT_ONCE = 2**17  # bytes; small images together, large ones without another copy
_FLUSHED_AT_ONCE = 2**26  # bytes; the disk works while the next images are decoded, not only after the last

Item = TypeVar("Item")
Result = TypeVar("Result")


def default_cache_dir() -> Path:
    """$ECHOLESS_CACHE, else `echoless` in the user's cache folder."""
    if chosen := os.environ.get("ECHOLESS_CACHE"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "echoless"


def kept_on_disk(array: Array) -> Array:
    """Equal to the array; a large one is memory of the file system, below the folder of the caches."""
    return in_a_file(array, _made_cache_dir())


def gathered_on_disk() -> Gathered:
    """The same, block by block."""
    return Gathered(_made_cache_dir())


def _made_cache_dir() -> Path:
    root = default_cache_dir()
    with suppress(OSError):
        root.mkdir(parents=True, exist_ok=True)
    return root


class CachedPixels:
    """A finished cache, memory-mapped: the operating system holds what is used, this process holds nothing."""

    def __init__(self, folder: Path) -> None:
        hold_shared(folder / "about.json", self)
        self._folder = folder
        self.note = f"decoded pixels are cached in {folder}"
        self.about: dict[str, Any] = json.loads((folder / "about.json").read_text())
        self.index: Array = np.asarray(np.load(folder / "index.npy", mmap_mode="r", allow_pickle=False))
        self.bad = [BadSample(**entry) for entry in self.about["bad"]]
        self.channels: int = self.about["channels"]
        dtype = np.dtype(np.uint8 if self.about["bits"] == 8 else np.uint16)
        size = (folder / "pixels.bin").stat().st_size
        whole = self.about["version"] == VERSION and crc32(self.index.tobytes()) == self.about["index_crc"]
        if not whole or size != self.about["bytes"] or len(self.index) != self.about["count"]:
            raise ValueError(f"{folder} is not a complete cache")
        # An empty file cannot be mapped.
        self._pixels: Array = np.asarray(np.memmap(folder / "pixels.bin", dtype, "r")) if size else np.empty(0, dtype)
        self._stacked = self._stack()
        self._checked_N = self.index[:, 1] == 0
        with suppress(OSError):  # a cache of somebody else
            os.utime(folder / "about.json")

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """The heights and widths that occur."""
        found = np.unique(self.index[self.index[:, 1] > 0, 1:3], axis=0)
        return [(int(height), int(width)) for height, width in found]

    def fetch(self, ids: Array) -> Fetched:
        self._check(ids[~self._checked_N[ids]])
        if self._stacked is not None and (self.index[ids, 1] > 0).all():
            return self._stacked[self.index[ids, 0] // self._stacked[0].size]
        return [self._one(int(index)) for index in ids]

    def _one(self, index: int) -> Array | BadSample:
        offset, height, width, _ = self.index[index]
        if height == 0:
            return next(sample for sample in self.bad if sample.index == index)
        values = self._pixels[offset : offset + self.channels * height * width]
        return from_order(values, (self.channels, int(height), int(width)))

    def _check(self, ids: Array) -> None:
        """Refuse pixels that are not the ones that were written; the next opening decodes all of them again."""
        for index, (offset, height, width, crc) in zip(ids.tolist(), self.index[ids].tolist()):
            if crc32(self._pixels[offset : offset + self.channels * height * width].data) != crc:
                with suppress(OSError):
                    (self._folder / "about.json").unlink()
                raise DataError(
                    f"{self._folder} is damaged: the pixels of image {index} are not the ones that were written; the "
                    "same command decodes the images again"
                )
            self._checked_N[index] = True

    def _stack(self) -> Array | None:
        """All images as one array, if they have one size and are small; large ones are handed out where they lie."""
        sizes = self.index[self.index[:, 1] > 0, 1:3]
        if not len(sizes) or (sizes != sizes[0]).any() or self.channels * sizes[0].prod() > LARGEST_PLANAR:
            return None
        return self._pixels.reshape(-1, self.channels, *sizes[0])


def open_cache(root: Path, key: str) -> CachedPixels | None:
    """The finished cache of this key, or None."""
    try:
        return CachedPixels(root / key)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def build_cache(
    root: Path, key: Callable[[], str], about: dict[str, Any], produced: Iterable[list[Array | BadSample]]
) -> CachedPixels:
    """Write what `produced` yields, in order, and open it. `about` holds at least `channels` and `bits`.

    `key` is asked for when everything was written: it may depend on what was read.
    """
    root.mkdir(parents=True, exist_ok=True)
    remove_debris(root)
    with _building(root) as folder:
        index, bad = write_pixels(folder / "pixels.bin", produced)
        np.save(folder / "index.npy", index, allow_pickle=False)
        size = (folder / "pixels.bin").stat().st_size
        facts = {"version": VERSION, "count": len(index), "bytes": size, "bad": [asdict(sample) for sample in bad]}
        facts["index_crc"] = crc32(index.tobytes())
        (folder / "about.json").write_text(json.dumps({**about, **facts}))
        _flush(folder)
        target = root / key()
        _move_into_place(folder, target)
    return CachedPixels(target)


def remove_debris(root: Path) -> None:
    """Delete what dead builders left."""
    for folder in root.glob(f"{LEFTOVER}*"):
        if not _is_alive(folder):
            shutil.rmtree(folder, ignore_errors=True)


def in_parallel(function: Callable[[Item], Result], items: Iterable[Item], workers: int) -> Iterator[Result]:
    """`map` over threads: results in order, and never more than a few items read ahead."""
    if workers == 0:
        yield from map(function, items)
        return
    own: set[int] = set()
    pool = ThreadPoolExecutor(workers, initializer=lambda: own.add(threading.get_ident()))
    pending: list[Future[Result]] = []
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) > 2 * workers:
                yield pending.pop(0).result()
        while pending:
            yield pending.pop(0).result()
    finally:
        # After an error elsewhere, one of the threads may collect this generator: it cannot wait for itself.
        pool.shutdown(wait=threading.get_ident() not in own, cancel_futures=True)


def write_pixels(path: Path, produced: Iterable[list[Array | BadSample]]) -> tuple[Array, list[BadSample]]:
    """The pixels end to end; returns offset, height, width and CRC of each image, and the bad ones."""
    rows: list[tuple[int, int, int, int]] = []
    bad: list[BadSample] = []
    offset = 0
    with path.open("wb", buffering=_WRITTEN_AT_ONCE) as file, ThreadPoolExecutor(1) as disk:
        flushed, flushing = 0, disk.submit(lambda: None)
        for images in produced:
            for image in images:
                if isinstance(image, BadSample):
                    bad.append(image)
                    rows.append((offset, 0, 0, 0))
                    continue
                data = in_order(image).data
                file.write(data)
                height, width = image.shape[1:]
                rows.append((offset, height, width, crc32(data)))
                offset += image.size
            if file.tell() - flushed > _FLUSHED_AT_ONCE and flushing.done():
                flushing.result()  # an error of the disk is reported once
                flushed, flushing = file.tell(), disk.submit(os.fdatasync, file.fileno())
        flushing.result()
    return np.array(rows, dtype=np.int64).reshape(-1, 4), bad


@contextmanager
def _building(root: Path) -> Iterator[Path]:
    folder = root / f"{LEFTOVER}{uuid4().hex}"
    folder.mkdir()
    try:
        with (folder / "lock").open("wb") as lock:
            lock_exclusively(lock.fileno())
            yield folder
    finally:
        # Gone already where the build succeeded.
        shutil.rmtree(folder, ignore_errors=True)


def _move_into_place(folder: Path, target: Path) -> None:
    if _is_complete(target):
        return  # another builder was first, and its copy is as good
    # Only a folder that is no cache can be here: something was deleted from it by hand.
    shutil.rmtree(target, ignore_errors=True)
    with suppress(FileExistsError, OSError):
        folder.rename(target)
    if not _is_complete(target):
        raise OSError(f"{folder.name} could not be moved to {target}")
    (target / "lock").unlink(missing_ok=True)
    sync_folder(target.parent)


def _is_complete(folder: Path) -> bool:
    return open_cache(folder.parent, folder.name) is not None


def _is_alive(folder: Path) -> bool:
    try:
        with (folder / "lock").open("rb") as lock:
            return not lock_exclusively(lock.fileno())
    except OSError:
        pass
    try:
        return time.time() - folder.stat().st_mtime < _SETTLING_SECONDS
    except OSError:
        return True  # it went away while we looked


def _flush(folder: Path) -> None:
    for path in folder.iterdir():
        _sync(path)
    sync_folder(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, open_flags("RDWR"))
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
