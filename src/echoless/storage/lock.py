"""Who uses this file? Locks of the operating system on it, which end with their process however it ends.

`FileLock` is exclusive, for a folder that one process may write into. `lock_exclusively` and `hold_shared` let readers
of a cache share it and keep whoever removes caches away. Windows has exclusive locks only, and a few network disks have
none: there, sharing is always granted and a cache never locked. What might be in use is then never deleted.
"""

from __future__ import annotations

import errno
import os
import time
import weakref
from pathlib import Path
from typing import Any

from echoless.errors import Busy, RunError
from echoless.storage.atomic import explained
from echoless.storage.portable import open_flags

_PAUSE = 0.1  # seconds between two tries
_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


_FAR = 2**30  # a byte that no small file has: locking it keeps nobody from reading


def _flock(descriptor: int, *, shared: bool = False, wait: bool = False) -> None:
    """flock(2); OSError with errno ENOSYS where the system has no such call."""
    try:
        import fcntl
    except ImportError:
        if shared:
            raise OSError(errno.ENOSYS, "this system has no shared locks") from None
        _lock_on_windows(descriptor, wait=wait)
        return
    fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))


def _lock_on_windows(descriptor: int, *, wait: bool) -> None:
    try:
        import msvcrt
    except ImportError:
        raise OSError(errno.ENOSYS, "this system has no locks") from None
    windows: Any = msvcrt  # type checkers on other systems know nothing of what is in it
    while True:
        os.lseek(descriptor, _FAR, os.SEEK_SET)
        try:
            windows.locking(descriptor, windows.LK_NBLCK, 1)
        except OSError:
            if not wait:
                raise
            time.sleep(_PAUSE)
        else:
            return


def lock_exclusively(descriptor: int) -> bool:
    """Lock the open file for this process alone, until it is closed; False if anybody else uses it, or might."""
    try:
        import fcntl  # noqa: F401
    except ImportError:  # no shared locks: nobody knows who reads
        return False
    try:
        _flock(descriptor)
    except OSError:
        return False
    return True


def hold_shared(path: Path, user: object) -> None:
    """Hold the file, together with others, for as long as `user` exists. OSError if it is gone or about to go."""
    descriptor = os.open(path, open_flags("RDONLY"))
    weakref.finalize(user, os.close, descriptor)
    try:
        _flock(descriptor, shared=True)
    except BlockingIOError:
        raise FileNotFoundError(f"{path} is being removed") from None
    except OSError:
        return  # no locks here
    # It may have been removed, and even replaced, between opening and locking.
    if not os.path.samestat(os.fstat(descriptor), path.stat()):
        raise FileNotFoundError(f"{path} was replaced")


class FileLock:
    """An exclusive lock on a small file, held from construction to `release` or to the end of the process.

    `held` is False on the few file systems that have no locks; the caller then has to be careful by itself.
    """

    held = False

    def __init__(self, path: Path, *, busy: str | None = None) -> None:
        """Take the lock: with `busy`, refuse at once with that sentence when another holds it; without, wait."""
        self._path = path
        self._descriptor: int | None = None
        _all.add(self)
        while not self._lock(busy):
            self.release()

    def _lock(self, busy: str | None) -> bool:
        """False if the file was removed by its last holder before it could be locked."""
        with explained(self._path):
            self._descriptor = os.open(self._path, open_flags("RDWR", "CREAT", "NOFOLLOW"), 0o666)
        try:
            _flock(self._descriptor, wait=busy is None)
            self.held = True
        except OSError as error:
            self.release()
            if error.errno not in _NO_LOCKS_HERE:
                if busy is None:
                    raise RunError(f"{self._path} cannot be locked: {error.strerror}") from None
                raise Busy(busy) from None
            return True
        try:
            return os.path.samestat(os.fstat(self._descriptor), self._path.stat())
        except FileNotFoundError:
            return False

    def remove(self) -> None:
        """Release the lock and delete its file, for a lock on something that will not be written again."""
        if self.held:
            self._path.unlink(missing_ok=True)
        self.release()

    def release(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self.held = None, False

    def __enter__(self) -> FileLock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


_all: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _drop_in_child() -> None:
    # A forked data worker shares its parent's lock and would keep it when the parent is killed. Closing the worker's
    # copy of the descriptor leaves the parent as the only holder.
    for lock in list(_all):
        lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_in_child)


def is_locked(path: Path) -> bool | None:
    """Whether a process holds this lock, without taking it from anybody; None where there is no such file."""
    try:
        descriptor = os.open(path, open_flags("RDONLY", "NOFOLLOW", "NONBLOCK"))
    except OSError:
        return None
    try:
        _flock(descriptor, shared=True)  # gone when the file is closed
    except OSError as error:
        return None if error.errno == errno.ENOSYS else True
    finally:
        os.close(descriptor)
    return False
