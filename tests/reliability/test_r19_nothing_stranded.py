"""R19: after many kills nothing is left behind: no shared memory, no living children, no lock, no temporary file, and
every next start works first time.

    pytest tests/reliability/test_r19_nothing_stranded.py -s
    python tests/reliability/test_r19_nothing_stranded.py FOLDER 50
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
from kill import one_life
from tiny import tiny_config, tiny_images, tiny_run

from echoless.data.cache import remove_debris
from echoless.runs import RunFolder
from echoless.runs.folder import LOCK
from echoless.storage.lock import FileLock

SHARED_MEMORY = Path("/dev/shm")
STEPS = 24


def shared_memory() -> set[str]:
    """Ours or of our kind: other programs of this machine come and go."""
    kinds = ("torch_", "psm_", "sem.", "pym-", "mp-")
    paths = SHARED_MEMORY.iterdir() if SHARED_MEMORY.is_dir() else ()
    return {path.name for path in paths if path.name.startswith(kinds)}


def children() -> int:
    return sum(len(file.read_text().split()) for file in Path("/proc/self/task").glob("*/children"))


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def temporary(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if ".tmp-" in path.name or path.name.startswith(".building-")]


def main(folder: Path, kills: int) -> int:
    """Kill run after run; a start that fails raises at once (`one_life` checks it)."""
    torch.set_num_threads(1)
    draw = random.Random(0)
    cache = folder / "cache"
    os.environ["ECHOLESS_CACHE"] = str(cache)
    images = tiny_images()
    config = tiny_config(images, steps=STEPS)
    before = shared_memory()
    started = time.monotonic()
    one_life(folder / "whole", images, config, 2, 600)
    length = time.monotonic() - started

    killed_so_far = starts = 0
    out = folder / "run"
    while killed_so_far < kills:
        killed, _ = one_life(out, images, config, 2, draw.uniform(0.02, 0.8) * length)
        starts, killed_so_far = starts + 1, killed_so_far + killed
        if (out / LOCK).exists():
            FileLock(out / LOCK, busy=f"{out} is still locked after {killed_so_far} kills").release()
        if not killed:
            shutil.rmtree(out)
    one_life(out, images, config, 2, 600)
    assert RunFolder(out).find_latest_valid().step == STEPS
    remove_debris(cache)
    stranded = {
        "shm": len(shared_memory() - before),
        "children": children(),
        "locks": int(not FileLock(out / LOCK, busy="locked").held),
        "temporary": len(temporary(folder)),
    }
    counts = " ".join(f"{name}={count}" for name, count in stranded.items())
    print(f"R19 kills={killed_so_far} starts={starts + 1}, each at the first attempt; stranded: {counts}")
    return int(any(stranded.values()))


def run(folder: Path, kills: int) -> None:
    done = subprocess.run(
        [sys.executable, __file__, folder, str(kills)],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        check=False,
    )
    print(done.stdout.strip().splitlines()[-1] if done.stdout else done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="NOT RUN: no /proc to count children in")
def test_fifty_kills_strand_nothing(tmp_path):
    run(tmp_path, 50)


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="NOT RUN: no /proc to count open files in")
def test_a_run_in_this_process_leaves_no_thread_and_no_open_file(tmp_path):
    images = tiny_images()
    config = tiny_config(images, steps=3)
    tiny_run(tmp_path / "first", images, config, workers=2)  # whatever is opened once
    threads, files = threading.active_count(), open_files()
    tiny_run(tmp_path / "second", images, config, workers=2)
    assert (threading.active_count(), open_files()) == (threads, files)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2])))
