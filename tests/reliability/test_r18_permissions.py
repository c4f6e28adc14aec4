"""R18: what cannot be written is said at start-up and at a save, with the path; file modes follow the umask.

Root may write anywhere, so where the tests run as root the attempts are made by a forked child without privileges.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from echoless.errors import RunError
from echoless.runs import open_run

NOBODY = 65534
SHORTCUTS = {"variant": "faded", "alphas": [1.0, 0.6]}


def content(step: int) -> tuple:
    return {"model": {"w": torch.full((5,), float(step))}}, {"step": step}, {"alphas": [1.0, 0.6]}


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077, 0o027])
def test_every_file_and_folder_has_the_mode_the_umask_asks_for(tmp_path, umask):
    before = os.umask(umask)
    try:
        with open_run(tmp_path / "run") as run:
            run.write_config({"seed": 0})
            run.append_metrics({"step": 1})
            run.log("hello")
            for step in (1, 2, 3):
                run.save_checkpoint(step, *content(step))
            run.save_encoder({"w": torch.ones(1)}, {}, SHORTCUTS)
            run.save_snapshot(1, {"w": torch.ones(1)}, {}, SHORTCUTS)
            run.add_results([{"metric": "knn", "value": 1, "protocol": {}}])
    finally:
        os.umask(before)
    wrong = 0
    paths = [tmp_path / "run", *(tmp_path / "run").rglob("*")]
    for path in paths:
        full = 0o777 if path.is_dir() else 0o666
        wrong += stat.S_IMODE(path.stat().st_mode) != full & ~umask
    print(f"R18 umask={umask:03o} paths={len(paths)} wrong_modes={wrong}")
    assert wrong == 0 and len(paths) > 15


def test_missing_parents_are_made_and_one_that_cannot_be_is_said_before_any_work(tmp_path):
    open_run(tmp_path / "missing" / "run").close()
    assert (tmp_path / "missing" / "run").is_dir()
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(RunError, match=r"run cannot be written: .*/file is not a folder"):
        open_run(tmp_path / "file" / "run")


@pytest.mark.parametrize(("number", "words"), [(errno.EDQUOT, "quota is used up"), (errno.EROFS, "is read-only")])
def test_a_used_up_quota_and_a_read_only_disk_are_said_at_start_up_and_at_a_save(tmp_path, monkeypatch, number, words):
    with open_run(tmp_path / "run") as run:
        for step in (1, 2):
            run.save_checkpoint(step, *content(step))

        def fsync(_: int) -> None:
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            with pytest.raises(RunError, match=f"step-00000003 cannot be written: .*{words}"):
                run.save_checkpoint(3, *content(3))
            with pytest.raises(
                RunError, match=f"other cannot be written: .*{words}|other/.* cannot be written: .*{words}"
            ):
                open_run(tmp_path / "other")
        assert run.find_latest_valid().step == 2


def test_a_read_only_folder_is_said_at_start_up_and_at_a_save(tmp_path):
    command = [sys.executable, __file__]
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip())
    assert "R18 attempts=5 refused=5 named=5 resumed=1" in done.stdout


def main() -> None:
    """Five attempts to write where it is not allowed, as a user without privileges."""
    if os.getuid() == 0:
        Path.cwd().chmod(0o777)
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    parent, run_path = Path("parent"), Path("parent/run")
    parent.mkdir()
    with open_run(run_path) as run:
        for step in (1, 2):
            run.save_checkpoint(step, *content(step))
        attempts = [
            (run_path / "checkpoints", lambda: run.save_checkpoint(3, *content(3))),
            (run_path, lambda: run.write_config({})),
            (run_path, lambda: run.save_encoder({"w": torch.ones(1)}, {}, SHORTCUTS)),
        ]
        said = [_attempt(*attempt) for attempt in attempts]
    said.append(_attempt(parent, lambda: open_run(parent / "new")))
    said.append(_attempt(run_path / "checkpoints", lambda: open_run(run_path, resume=True)))
    with open_run(run_path, resume=True) as run:
        run.save_checkpoint(3, *content(3))
        resumed = run.find_latest_valid().step == 3
    named = sum("parent/" in message and "permission denied" in message for message in said)
    print(f"R18 attempts={len(said)} refused={sum(map(bool, said))} named={named} resumed={int(resumed)}")


def _attempt(folder: Path, work) -> str:
    """Do the work while `folder` is read-only; returns what was said."""
    folder.chmod(0o555)
    try:
        work()
    except RunError as error:
        return str(error)
    finally:
        folder.chmod(0o755)
    return ""


if __name__ == "__main__":
    main()
