"""Who uses this file? Locks of the operating system on it, which end with their process however it ends.

Where there are no such locks (Windows, a few network disks) sharing is always granted and nothing is ever had alone:
what might be in use is then never deleted.
"""

from __future__ import annotations

import os
import weakref
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]


def have_alone(descriptor: int) -> bool:
    """Lock the open file for this process alone, until it is closed; False if anybody else uses it."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def use(path: Path, user: object) -> None:
    """Hold the file, together with others, for as long as `user` exists. OSError if it is gone or about to go."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0))
    weakref.finalize(user, os.close, descriptor)
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FileNotFoundError(f"{path} is being removed") from None
    except OSError:
        return  # this disk has no locks
    # It may have been removed, and even replaced, between opening and locking.
    if not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise FileNotFoundError(f"{path} was replaced")
