"""R3: a kill in the middle of a save never destroys a good checkpoint, wherever the temporary files of the system live.

A process that has run no parallel torch operation forks children that save 50 MB checkpoints; each child is killed at a
random moment of its save, and the newest valid checkpoint must then be there and hold exactly what was saved. The order
of fsync and rename, on which a power cut depends, is checked in tests/runs/test_checkpoint.py.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

OTHER_FILE_SYSTEM = Path("/dev/shm")
MEGABYTES = 50


@pytest.mark.parametrize("kills", [40, pytest.param(500, marks=pytest.mark.slow)])
def test_no_kill_during_a_save_leaves_the_run_without_a_usable_checkpoint(tmp_path, kills):
    """Half of the kills on each of two file systems, with TMPDIR always on the other one."""
    unusable = in_save = 0
    for folder, temporary in _places(tmp_path):
        try:
            result = _kill_saves(folder, temporary, kills // 2)
        finally:
            shutil.rmtree(folder)
        in_save += result[0]
        unusable += result[1]
    print(f"R3 kills={kills} in_save={in_save} unusable={unusable}")
    assert unusable == 0
    assert in_save > 0


def _places(tmp_path: Path) -> list[tuple[Path, Path]]:
    here = tmp_path / "checkpoints"
    here.mkdir()
    if not os.access(OTHER_FILE_SYSTEM, os.W_OK):
        there = tmp_path / "also here"
        there.mkdir()
        return [(here, tmp_path), (there, tmp_path)]
    there = Path(tempfile.mkdtemp(prefix="echoless-r3-", dir=OTHER_FILE_SYSTEM))
    return [(here, OTHER_FILE_SYSTEM), (there, tmp_path)]


def _kill_saves(folder: Path, temporary: Path, kills: int) -> tuple[int, int]:
    environment = {**os.environ, "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(folder), str(kills)]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    in_save, unusable = map(int, done.stdout.split())
    return in_save, unusable


def main(folder: Path, kills: int) -> None:
    """In the process that forks: fork, wait, kill, look, `kills` times."""
    import torch

    from echoless.runs import save_checkpoint

    torch.set_num_threads(1)
    payload = torch.arange(MEGABYTES * 2**18, dtype=torch.float32)
    rng = random.Random(0)

    def save(step: int) -> None:
        payload[0] = step
        save_checkpoint(folder, step, {"model": {"w": payload}}, {"step": step}, {"alphas": [1.0]})

    started = time.monotonic()
    save(1), save(2)
    longest = 1.2 * (time.monotonic() - started) / 2
    in_save = unusable = 0
    for step in range(3, 3 + kills):
        if (child := os.fork()) == 0:
            try:
                save(step)
                signal.pause()
            finally:
                os._exit(1)
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        in_save += any(".tmp-" in path.name for path in folder.iterdir())
        unusable += not _usable(folder, payload)
    print(in_save, unusable)


def _usable(folder: Path, payload) -> bool:
    from echoless.errors import EcholessError
    from echoless.runs import find_latest_valid
    from echoless.storage.tensorfile import read_tensors

    try:
        found = find_latest_valid(folder)
        weights = read_tensors(found.path / "model.safetensors")[0]["w"]
    except EcholessError as error:
        print(error, file=sys.stderr)
        return False
    return bool(weights[0] == found.step and (weights[1:] == payload[1:]).all())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
