"""Who may write here now? A lock that the kernel takes back when its holder dies, so that nothing is ever stranded."""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from pathlib import Path

from echoless.errors import RunError
from echoless.runs.atomic import explained

_NO_LOCKS_HERE = (errno.ENOSYS, errno.ENOTSUP, errno.ENOLCK)


class FileLock:
    """An exclusive flock on a small file, held from construction to `release` or to the end of the process.

    `held` is False on the few file systems that have no locks; the caller then has to be careful by itself.
    """

    def __init__(self, path: Path, *, busy: str | None = None) -> None:
        """Take the lock: with `busy`, refuse at once with that sentence when another holds it; without, wait."""
        with explained(path):
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._descriptor: int | None = os.open(path, flags, 0o666)
        _all.add(self)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (fcntl.LOCK_NB if busy else 0))
            self.held = True
        except OSError as error:
            self.release()
            if error.errno not in _NO_LOCKS_HERE:
                raise RunError(busy or f"{path} cannot be locked: {error.strerror}") from None

    held = False

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


os.register_at_fork(after_in_child=_drop_in_child)
