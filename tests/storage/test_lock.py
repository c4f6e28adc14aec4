"""Proves that one process holds the lock, and that its death alone frees it at once, whatever its children do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from unittest import mock

import pytest

from echoless.errors import RunError
from echoless.storage import lock
from echoless.storage.lock import FileLock, hold_shared, lock_exclusively

# Takes the lock, forks a child that lives on (as a data worker does for a while), says both ids and sleeps.
HOLDER = """
import os, signal, sys
from pathlib import Path
from echoless.storage.lock import FileLock
lock = FileLock(Path(sys.argv[1]))
child = os.fork()
if child == 0:
    signal.pause()
print(child, flush=True)
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
