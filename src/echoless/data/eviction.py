"""Which decoded caches and copies of remote files go when there is no room for all of them?

Those unused for longest, until the others fit the limit: a quarter of the disk, or $ECHOLESS_CACHE_LIMIT. A cache that
any process has open stays. One that goes is renamed to a leftover first, so that a folder with the name of a cache is
whole at every instant; a deletion that is cut short is finished by the next builder.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain
from pathlib import Path
from uuid import uuid4

from echoless.config.sizes import parse_bytes
from echoless.data.cache import LEFTOVER, remove_debris
from echoless.storage.atomic import is_leftover
from echoless.storage.lock import lock_exclusively

LIMIT = "ECHOLESS_CACHE_LIMIT"
COPY = "copy-"  # how the name of a folder begins that holds a copy
_SHARE = 4  # of the disk, by default


def cache_limit(disk: Path) -> int:
    """How many bytes all caches and copies may take together, on the disk of this existing folder."""
    chosen = os.environ.get(LIMIT)
    if not chosen:
        return shutil.disk_usage(disk).total // _SHARE
    return parse_bytes(LIMIT, chosen)


def make_room(root: Path, allowed: int) -> str:
    """Remove caches until the others take at most `allowed` bytes; returns one sentence about it, or nothing.

    What is being written counts: a copy that is fetched for a cache in the making leaves it its room.
    """
    remove_debris(root)
    caches = _by_last_use(root)
    total = sum(size for _, size in caches) + sum(map(_bytes_in, _unfinished(root)))
    gone = freed = 0
    for folder, size in caches:
        if total - freed <= allowed:
            break
        if _evict(folder):
            gone, freed = gone + 1, freed + size
    if not gone:
        return ""
    what = "the least recently used cache" if gone == 1 else f"the {gone} least recently used caches"
    return f"removed {what} ({freed:,} bytes) to make room in {root}; {LIMIT} sets the limit"


def _by_last_use(root: Path) -> list[tuple[Path, int]]:
    """Every cache and copy and its bytes, the one unused for longest first."""
    found = []
    for folder in chain((pixels.parent for pixels in root.glob("*/pixels.bin")), root.glob(f"{COPY}*/")):
        with suppress(OSError):  # it went away while we looked
            if not folder.name.startswith(LEFTOVER) and not is_leftover(folder):
                found.append(((folder / "about.json").stat().st_mtime_ns, folder, _bytes_in(folder)))
    return [(folder, size) for _, folder, size in sorted(found)]


def _unfinished(root: Path) -> Iterator[Path]:
    """Caches and copies that are being written."""
    yield from root.glob(f"{LEFTOVER}*")
    yield from (folder for folder in root.glob(f"{COPY}*/") if is_leftover(folder))


def _bytes_in(folder: Path) -> int:
    total = 0
    with suppress(OSError):  # it goes away while we look
        for path in folder.iterdir():
            total += path.stat().st_size
    return total


def _evict(folder: Path) -> bool:
    """Whether the cache was ours to remove: nobody uses it, and nobody else was first."""
    leftover = folder.with_name(f"{LEFTOVER}{folder.name[:16]}-{uuid4().hex[:12]}")
    try:
        with (folder / "about.json").open("rb") as about:
            if not lock_exclusively(about.fileno()):
                return False
            folder.rename(leftover)
    except OSError:
        return False
    shutil.rmtree(leftover, ignore_errors=True)
    return True
