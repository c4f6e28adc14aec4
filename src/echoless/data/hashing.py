"""How are all images of a set hashed, by one process or by several that share the work?"""

from __future__ import annotations

import time
from collections.abc import Callable

from echoless.data.cache_place import CachePlace
from echoless.data.content import Hasher, Memory, digest
from echoless.data.parts import FOLDER, SharedParts, Tell
from echoless.errors import RunError

Hash = Callable[[int, int, Tell], Hasher]  # of units first .. last - 1


def hash_all(place: CachePlace, memory: Memory, units: int, hash_range: Hash) -> Hasher:
    """Every image is read once, by one of the processes. The result is remembered."""
    hasher = _hash_together(place, memory, units, hash_range) if place.share.count > 1 else None
    if hasher is None:
        hasher = hash_range(0, units, lambda done: place.progress(done, units) if place.progress else None)
    memory.keep(hasher)
    return hasher


def _hash_together(place: CachePlace, memory: Memory, units: int, hash_range: Hash) -> Hasher | None:
    """None where the folder of the caches cannot be written: then every process reads everything."""
    parts = SharedParts(place.root / f"{FOLDER}{shared_name('hashes', place, memory)}", units, place.share)
    try:
        records = parts.finish(lambda first, last, _, tell: hash_range(first, last, tell).found(), place.progress)
    except RunError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        return None
    return Hasher.joined(records)


def shared_name(work: str, place: CachePlace, memory: Memory) -> str:
    """Of work on these files. What an earlier start left is used only if a change would show in the stamps."""
    now = "" if memory.settled_before(time.time_ns()) else place.share.token
    return digest([work, memory.name, now])[:32]
