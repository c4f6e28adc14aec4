"""Proves that one process holds the lock, and that its death alone frees it at once, whatever its children do."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from unittest import mock

import pytest

from echoless.errors import RunError
from echoless.storage import lock
from echoless.storage.lock import FileLock, hold_shared, is_locked, lock_exclusively

# Takes the lock, forks a child that lives on (as a data worker does for a while) and says its id.
HOLDER = """
import os, signal, sys
from pathlib import Path
from echoless.storage.lock import FileLock
lock = FileLock(Path(sys.argv[1]))
if os.fork() == 0:
    print(os.getpid(), flush=True)
signal.pause()
"""


def test_a_second_holder_is_refused_until_the_first_lets_go(tmp_path):
    with FileLock(tmp_path / "lock", busy="taken") as lock:
        assert lock.held
        with pytest.raises(RunError, match="taken"):
            FileLock(tmp_path / "lock", busy="taken")
    assert FileLock(tmp_path / "lock", busy="taken").held


def test_a_killed_holder_frees_it_even_while_its_child_lives(tmp_path):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
        child = int(holder.stdout.readline())
        try:
            with pytest.raises(RunError, match="taken"):
                FileLock(tmp_path / "lock", busy="taken")
            holder.send_signal(signal.SIGKILL)
            holder.wait()
            os.kill(child, 0)
            assert FileLock(tmp_path / "lock", busy="taken").held
        finally:
            holder.kill()
            os.kill(child, signal.SIGKILL)


def test_a_removed_lock_leaves_no_file_and_cannot_be_held_by_two(tmp_path):
    """Whoever opened the file just before it was removed holds nothing: it has to open the new one."""
    FileLock(tmp_path / "lock", busy="taken").remove()
    assert not (tmp_path / "lock").exists()
    first = FileLock(tmp_path / "lock", busy="taken")
    real, waited = lock._flock, []

    def removed_meanwhile(descriptor, **how):
        if not waited:
            waited.append(descriptor)
            first.remove()
        real(descriptor, **how)

    with mock.patch.object(lock, "_flock", removed_meanwhile):
        second = FileLock(tmp_path / "lock", busy="taken")
    assert second.held and (tmp_path / "lock").exists()
    with pytest.raises(RunError, match="taken"):
        FileLock(tmp_path / "lock", busy="taken")


class User:
    """Something that holds a file for as long as it exists."""


def test_readers_share_a_file_and_keep_its_remover_away_until_the_last_has_gone(tmp_path):
    path = tmp_path / "about.json"
    path.write_text("{}")
    users = [User(), User()]
    for user in users:
        hold_shared(path, user)
    for left in (2, 1, 0):
        with path.open("rb") as file:
            assert lock_exclusively(file.fileno()) == (left == 0)
        if left:
            users.pop()
            del user
            user = None


def test_a_file_that_is_being_removed_is_not_held(tmp_path):
    path = tmp_path / "about.json"
    path.write_text("{}")
    with path.open("rb") as remover:
        assert lock_exclusively(remover.fileno())
        with pytest.raises(FileNotFoundError, match="is being removed"):
            hold_shared(path, User())


def test_a_file_that_was_replaced_between_opening_and_locking_is_not_held(tmp_path, monkeypatch):
    path, other = tmp_path / "about.json", tmp_path / "other.json"
    path.write_text("{}")
    locked = lock._flock

    def replaced_first(descriptor: int, **options: bool) -> None:
        other.write_text("{}")
        other.replace(path)
        locked(descriptor, **options)

    monkeypatch.setattr(lock, "_flock", replaced_first)
    with pytest.raises(FileNotFoundError, match="was replaced"):
        hold_shared(path, User())


class Msvcrt:
    """Windows' locks on bytes of a file, which belong to whoever opened it; here by the file's inode."""

    LK_NBLCK = 2

    def __init__(self) -> None:
        self.held: dict[int, int] = {}  # inode -> descriptor

    def locking(self, descriptor: int, mode: int, count: int) -> None:
        assert (mode, count, os.lseek(descriptor, 0, os.SEEK_CUR)) == (self.LK_NBLCK, 1, 2**30)
        inode = os.fstat(descriptor).st_ino
        if self.held.setdefault(inode, descriptor) != descriptor:
            raise OSError(errno.EACCES, "Permission denied")


@pytest.fixture
def windows(monkeypatch):
    """No fcntl, and locks that end where the file is closed."""
    locks, real = Msvcrt(), os.close

    def close(descriptor: int) -> None:
        locks.held = {inode: each for inode, each in locks.held.items() if each != descriptor}
        real(descriptor)

    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", locks)
    monkeypatch.setattr(os, "close", close)
    return locks


def test_without_flock_a_folder_still_has_one_writer(windows, tmp_path):
    with FileLock(tmp_path / "lock", busy="taken") as first:
        assert first.held
        with pytest.raises(RunError, match="taken"):
            FileLock(tmp_path / "lock", busy="taken")
    assert FileLock(tmp_path / "lock", busy="taken").held


def test_without_flock_whoever_waits_gets_it_in_the_end(windows, tmp_path, monkeypatch):
    first, pauses = FileLock(tmp_path / "lock"), []
    monkeypatch.setattr(lock.time, "sleep", lambda seconds: pauses.append(seconds) or first.release())
    assert FileLock(tmp_path / "lock").held and len(pauses) == 1


def test_without_shared_locks_nothing_that_might_be_read_is_locked_away(windows, tmp_path):
    path = tmp_path / "cache"
    path.write_text("pixels")
    hold_shared(path, lock)  # granted
    with path.open() as file:
        assert not lock_exclusively(file.fileno())
    assert is_locked(path) is None


def test_without_any_locks_the_caller_is_told(tmp_path, monkeypatch):
    for module in ("fcntl", "msvcrt"):
        monkeypatch.setitem(sys.modules, module, None)
    assert not FileLock(tmp_path / "lock", busy="taken").held
