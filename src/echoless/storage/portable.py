"""Which calls of the operating system may be missing? Windows has no flags for links and pipes, and no synced folders.

Everything here asks at the moment of the call, so that tests can take away what another system does not have.
"""

from __future__ import annotations

import os
from functools import reduce
from operator import or_


def open_flags(*names: str) -> int:
    """`open_flags("RDONLY", "NOFOLLOW")`: for os.open, without those that this system does not have."""
    return reduce(or_, (getattr(os, f"O_{name}", 0) for name in (*names, "CLOEXEC", "BINARY")))


def can_sync_folders() -> bool:
    return hasattr(os, "O_DIRECTORY")


def can_ask_for_processes() -> bool:
    """Whether signal 0 asks if a process lives. On Windows it would stop the process instead."""
    return os.name == "posix"
