"""How is freed memory used again without asking the kernel? By telling the allocator of glibc to keep it.

A training step frees the memory that the next one needs. By default glibc returns it to the kernel, which hands it out
again page by page, each zeroed: thousands of page faults in every step of a small network (docs/performance.md).
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # the numbers of M_TRIM_THRESHOLD and M_MMAP_THRESHOLD in malloc.h
_ALL = 2**31 - 1
_LARGEST_ON_HEAP = 32 * 2**20  # bytes; glibc allows no more


@contextmanager
def reuse_freed_memory() -> Iterator[bool]:
    """Inside, freed memory stays with this process; at the end it is returned. False where there is no glibc."""
    glibc = _glibc()
    if glibc is None:
        yield False
        return
    kept = glibc.mallopt(_TRIM_THRESHOLD, _ALL) and glibc.mallopt(_MMAP_THRESHOLD, _LARGEST_ON_HEAP)
    try:
        yield bool(kept)
    finally:
        glibc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_ON_HEAP)  # where glibc's own rule ends after large allocations
        glibc.malloc_trim(0)


def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
