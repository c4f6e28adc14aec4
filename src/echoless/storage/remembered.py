"""What is the SHA-256 of a large file? It is computed once, and remembered for as long as the file does not change.

A file has not changed if its place, size, times and inode are the same, and if its last change was well before it was
hashed: within the resolution of its time of change it could be written again unseen.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from contextlib import suppress
from pathlib import Path

from echoless.errors import RunError
from echoless.storage.atomic import write_bytes
from echoless.storage.lock import FileLock
from echoless.storage.seal import seal_of

_SETTLED_NS = 2 * 10**9


def remembered_sha256(file: Path, memory: Path) -> str:
    """`memory` is the folder of remembered hashes. Of several processes that ask at once, one computes."""
    status = file.stat()
    stamp = [str(file.resolve()), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
    place = memory / f"{hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:32]}.sha256"
    if (known := _read(place)) is not None:
        return known
    if time.time_ns() < status.st_ctime_ns + _SETTLED_NS:
        return seal_of(file).sha256
    try:
        memory.mkdir(parents=True, exist_ok=True)
        lock = FileLock(place.with_suffix(".lock"))
    except (OSError, RunError):  # a read-only disk is no error
        return seal_of(file).sha256
    with lock:
        digest = _read(place) or seal_of(file).sha256
        with suppress(RunError):
            write_bytes(place, digest.encode())
        lock.remove()
    return digest


def _read(place: Path) -> str | None:
    with suppress(OSError, UnicodeDecodeError):
        text = place.read_bytes()[:80].decode()
        return text if re.fullmatch(r"[0-9a-f]{64}", text) else None
    return None
