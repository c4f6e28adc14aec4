"""Proves that files and folders appear whole or not at all, in the right order of syscalls, and that errors explain."""

from __future__ import annotations

import errno
import os
import socket
import stat
import time
from pathlib import Path
from unittest import mock

import pytest

from echoless.errors import RunError
from echoless.storage import clear_leftovers, new_folder, write_bytes
from echoless.storage.atomic import can_write, create_file, discard_folder, explained, new_file, temporary_beside

DEAD_PID = 2**22 + 1  # above the largest process id Linux gives out


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def syscalls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record every fsync (by the name of what is synced) and rename, in order."""
    seen: list[tuple[str, str]] = []
    real = {name: getattr(os, name) for name in ("fsync", "rename", "replace")}

    def fsync(descriptor: int) -> None:
        seen.append(("fsync", Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".tmp-")[0]))
        real["fsync"](descriptor)

    def moving(name: str):
        def move(source, target, **keywords) -> None:
            seen.append((name, Path(target).name))
            real[name](source, target, **keywords)

        return move

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "rename", moving("rename"))
    monkeypatch.setattr(os, "replace", moving("replace"))
    return seen


def test_a_file_is_on_the_disk_before_it_gets_its_name_and_the_name_after_it(tmp_path, monkeypatch):
    seen = syscalls(monkeypatch)
    write_bytes(tmp_path / "a.json", b"one")
    assert seen == [("fsync", "a.json"), ("replace", "a.json"), ("fsync", tmp_path.name)]
    assert names(tmp_path) == ["a.json"]


def test_a_folder_is_on_the_disk_before_it_gets_its_name_and_the_name_after_it(tmp_path, monkeypatch):
    seen = syscalls(monkeypatch)
    with new_folder(tmp_path / "step") as folder:
        assert folder == temporary_beside(tmp_path / "step") and folder.parent == tmp_path
        with create_file(folder / "x") as file:
            file.write(b"x")
    assert seen == [("fsync", "x"), ("fsync", "step"), ("rename", "step"), ("fsync", tmp_path.name)]
    assert names(tmp_path) == ["step"]


def test_a_folder_replaces_the_one_in_its_place(tmp_path):
    for content in ("old", "new"):
        with new_folder(tmp_path / "encoder") as folder, create_file(folder / content):
            pass
    assert names(tmp_path) == ["encoder"] and names(tmp_path / "encoder") == ["new"]


@pytest.mark.parametrize("failure", [RuntimeError, KeyboardInterrupt])
def test_a_failed_write_leaves_the_old_folder_and_no_debris(tmp_path, failure):
    with new_folder(tmp_path / "encoder") as folder, create_file(folder / "old"):
        pass
    with pytest.raises(failure), new_folder(tmp_path / "encoder") as folder, create_file(folder / "new"):
        raise failure
    assert names(tmp_path) == ["encoder"] and names(tmp_path / "encoder") == ["old"]


def test_a_failed_rename_puts_the_old_folder_back(tmp_path, monkeypatch):
    with new_folder(tmp_path / "encoder") as folder, create_file(folder / "old"):
        pass
    real = os.rename

    def rename(source, target, **keywords):
        if ".tmp-" in str(source):
            raise OSError(errno.EIO, "Input/output error")
        real(source, target, **keywords)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(RunError, match="Input/output error"), new_folder(tmp_path / "encoder"):
        pass
    assert names(tmp_path) == ["encoder"] and names(tmp_path / "encoder") == ["old"]


def test_leftovers_of_dead_processes_go_and_those_of_living_ones_stay(tmp_path):
    for name in (f"step-1.tmp-{DEAD_PID}", f"step-2.tmp-{os.getppid()}", f"step-3.tmp-{os.getpid()}", "step-4"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    (tmp_path / f"latest.tmp-{DEAD_PID}").touch()
    (tmp_path / f"huge.tmp-{'9' * 30}").touch()
    clear_leftovers(tmp_path)
    assert names(tmp_path) == [f"step-2.tmp-{os.getppid()}", "step-4"]


def test_a_folder_that_a_dead_process_had_moved_aside_comes_back(tmp_path):
    (tmp_path / f"encoder.old-{DEAD_PID}").mkdir()
    clear_leftovers(tmp_path)
    assert names(tmp_path) == ["encoder"]
    (tmp_path / f"encoder.old-{DEAD_PID}").mkdir()
    clear_leftovers(tmp_path, "other")
    assert len(names(tmp_path)) == 2
    clear_leftovers(tmp_path, "encoder")
    assert names(tmp_path) == ["encoder"]


def test_leftovers_of_another_machine_stay_for_a_day_unless_a_lock_says_that_it_is_done(tmp_path):
    """The same process id there says nothing here; in a home folder that nodes share it would cost a living write."""
    half = tmp_path / f"step-1.tmp-0123abcd-{DEAD_PID}"
    half.mkdir()
    (half / "file").touch()
    clear_leftovers(tmp_path)
    assert names(tmp_path) == [half.name]
    yesterday = time.time() - 25 * 3600
    os.utime(half, (yesterday, yesterday))
    clear_leftovers(tmp_path)  # the file in it is young
    assert names(tmp_path) == [half.name]
    with mock.patch("time.time", lambda: yesterday + 51 * 3600):
        clear_leftovers(tmp_path)
    assert names(tmp_path) == []
    (tmp_path / f"encoder.old-0123abcd-{os.getppid()}").mkdir()
    clear_leftovers(tmp_path, locked=True)
    assert names(tmp_path) == ["encoder"]


def test_a_file_written_piece_by_piece_appears_whole_or_not_at_all(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(ZeroDivisionError), new_file(tmp_path / "a") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"
    with new_file(tmp_path / "a") as file:
        file.write(b"new")
        assert (tmp_path / "a").read_text() == "old"
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "new"


def test_leftovers_never_stop_a_write(tmp_path):
    temporary_beside(tmp_path / "a").mkdir()
    (temporary_beside(tmp_path / "a") / "x").touch()
    write_bytes(tmp_path / "a", b"1")
    temporary_beside(tmp_path / "b").touch()
    (tmp_path / f"b.tmp-{DEAD_PID}").mkdir()  # of a killed writer of the same folder
    with new_folder(tmp_path / "b"):
        pass
    assert names(tmp_path) == ["a", "b"]
    clear_leftovers(tmp_path / "missing")


def test_a_link_under_the_temporary_name_is_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    temporary_beside(tmp_path / "a").symlink_to(outside)
    write_bytes(tmp_path / "a", b"1")
    assert outside.read_text() == "precious" and (tmp_path / "a").read_bytes() == b"1"


def test_a_link_in_the_place_of_the_target_is_replaced_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.write_text("precious")
    (tmp_path / "a").symlink_to(outside)
    write_bytes(tmp_path / "a", b"1")
    assert outside.read_text() == "precious" and not (tmp_path / "a").is_symlink()


def test_what_is_neither_file_nor_folder_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(tmp_path)  # a socket's path is short
        server.bind("socket")
        os.chdir(here)
        for name, kind in (("pipe", stat.S_ISFIFO), ("socket", stat.S_ISSOCK)):
            with pytest.raises(RunError, match=f"{name} cannot be written: it exists and is not a regular file"):
                write_bytes(tmp_path / name, b"1")
            with pytest.raises(RunError, match="is not a folder"), new_folder(tmp_path / name):
                pass
            assert kind((tmp_path / name).lstat().st_mode)


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, r"the disk is full \(3 bytes needed, \d+ bytes free\)"),
        (errno.EDQUOT, r"the disk quota is used up \(3 bytes needed, \d+ bytes free\)"),
        (errno.EFBIG, r"a file may not grow beyond -?\d+ bytes here \(3 bytes needed, \d+ bytes free\)"),
        (errno.EACCES, "permission denied"),
        (errno.EROFS, "the file system is read-only"),
        (errno.EIO, "Input/output error"),
    ],
)
def test_what_the_system_says_becomes_one_sentence_with_the_path(tmp_path, monkeypatch, number, words):
    write_bytes(tmp_path / "a", b"old")

    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(RunError, match=f"^{tmp_path}/a cannot be written: {words}$"):
        write_bytes(tmp_path / "a", b"new")
    assert (tmp_path / "a").read_bytes() == b"old" and names(tmp_path) == ["a"]


def test_a_missing_parent_of_a_file_is_named_and_that_of_a_folder_is_made(tmp_path):
    with pytest.raises(RunError, match=r"its parent folder .*/no does not exist"):
        write_bytes(tmp_path / "no" / "a", b"1")
    with new_folder(tmp_path / "no" / "a") as folder:
        (folder / "inside").write_bytes(b"1")
    assert (tmp_path / "no" / "a" / "inside").exists()
    write_bytes(tmp_path / "file", b"1")
    with pytest.raises(RunError, match=r"its parent .*/file is not a folder"):
        write_bytes(tmp_path / "file" / "a", b"1")
    with pytest.raises(RunError, match=r"its parent .*/file is not a folder"), explained(tmp_path / "file" / "a"):
        (tmp_path / "file").mkdir(parents=True, exist_ok=True)
    with pytest.raises(RunError, match=r"its parent .*/file is not a folder"), new_folder(tmp_path / "file" / "a"):
        pass
    with new_folder(tmp_path / "no" / "a"):
        pass
    assert (tmp_path / "no" / "a").is_dir(), "a folder is made with its parents"


def test_a_deletion_that_is_cut_short_leaves_a_leftover_and_no_half_folder(tmp_path, monkeypatch):
    (tmp_path / "step").mkdir()
    (tmp_path / "step" / "file").touch()

    def unlink(*_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "unlink", unlink)
    with pytest.raises(PermissionError):
        discard_folder(tmp_path / "step")
    monkeypatch.undo()
    assert names(tmp_path) == [temporary_beside(tmp_path / "step").name]
    clear_leftovers(tmp_path)
    assert names(tmp_path) == []


def test_a_new_file_is_never_one_that_exists_nor_what_a_link_points_to(tmp_path):
    """Somebody may plant either between the removal of a leftover and the creation of the file."""
    (tmp_path / "there").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("there", "link"):
        with pytest.raises(FileExistsError), create_file(tmp_path / name):
            pass
    assert (tmp_path / "there").read_text() == "precious" and not (tmp_path / "nowhere").exists()


def test_a_file_is_no_folder_to_write_into(tmp_path):
    (tmp_path / "file").touch()
    assert can_write(tmp_path) and can_write(tmp_path / "new" / "deeper")
    assert not can_write(tmp_path / "file")
