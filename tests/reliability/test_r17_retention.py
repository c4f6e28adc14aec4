"""R17: killed at any phase of a save, the next save succeeds, leaves no debris, and two valid checkpoints always exist.

A forked child counts its own file-system calls and kills itself right before the n-th, for every n that a save makes:
that is every phase there is, the pruning and the replacement of an existing step included.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

from echoless.errors import EcholessError
from echoless.runs import checkpoint_folders, save_checkpoint, verify_checkpoint
from echoless.storage import clear_leftovers

CALLS = ("open", "mkdir", "fsync", "rename", "replace", "unlink", "rmdir", "close")
NOBODY = 65534


def test_no_kill_and_no_failed_delete_costs_a_checkpoint(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip())
    assert done.stdout.count("failures=0") == 3, done.stderr
    kills = [int(number) for number in re.findall(r"kills=(\d+)", done.stdout)]
    assert len(kills) == 2 and min(kills) >= 20, "a save makes more file-system calls than were killed"


def save(folder: Path, step: int) -> None:
    tensors = {"model": {"w": torch.full((100,), float(step))}, "optim": {"m": torch.zeros(10)}}
    save_checkpoint(folder, step, tensors, {"step": step}, {"alphas": [1.0]})


def valid_steps(folder: Path) -> list[int]:
    steps = []
    for path in checkpoint_folders(folder):
        try:
            steps.append(verify_checkpoint(path)["step"])
        except EcholessError:
            continue
    return steps


def kill_before_call(number: int) -> None:
    """From now on, die in front of the file-system call with this number."""
    count = 0

    def counted(real: Callable) -> Callable:
        def call(*arguments, **keywords):
            nonlocal count
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)
            count += 1
            return real(*arguments, **keywords)

        return call

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))


def in_child(work: Callable[[], None]) -> int:
    """Run in a fork; returns the exit code, negative for a signal."""
    if (child := os.fork()) == 0:
        code = 1
        try:
            work()
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def doomed_save(folder: Path, step: int, number: int) -> None:
    kill_before_call(number)
    save(folder, step)


def kill_everywhere(scene: str) -> None:
    """`new_step` saves the next step; `same_step` saves the newest one again, with other content."""
    failures = kills = number = 0
    while True:
        folder = Path(f"{scene}-{number}")
        folder.mkdir()
        save(folder, 1), save(folder, 2)
        step = 3 if scene == "new_step" else 2
        code = in_child(partial(doomed_save, folder, step, number))
        if code == 0:
            break
        kills += 1
        failures += code != -signal.SIGKILL
        clear_leftovers(folder)  # as open_run does
        failures += len(valid_steps(folder)) < 2
        save(folder, 4)
        failures += valid_steps(folder)[:1] != [4] or len(valid_steps(folder)) != 2
        failures += any("-" in path.suffix for path in folder.iterdir())
        number += 1
    print(f"R17 scene={scene} kills={kills} failures={failures}")


def read_only_old_checkpoint() -> None:
    """An old folder that may not be emptied stays, and training goes on."""
    folder = Path("run")
    folder.mkdir()

    folder.chmod(0o777)
    Path.cwd().chmod(0o711)

    def work() -> None:
        if os.getuid() == 0:  # root may delete anything
            os.setuid(NOBODY)
        for step in (1, 2):
            save(folder, step)
        (folder / "step-00000001").chmod(0o555)
        for step in (3, 4, 5):
            save(folder, step)

    code = in_child(work)
    failures = (code != 0) + (valid_steps(folder) != [5, 4])
    left = sorted(path.name for path in folder.iterdir() if path.name.startswith("step-00000001"))
    failures += len(left) != 1
    for path in folder.glob("step-00000001*"):
        path.chmod(0o755)
    print(f"R17 scene=read_only saves_after=3 failures={failures}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    os.fsync = lambda descriptor: None  # a kill loses nothing that the kernel has; this only makes the test quick
    kill_everywhere("new_step")
    kill_everywhere("same_step")
    read_only_old_checkpoint()
