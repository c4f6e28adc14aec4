"""R5: on a full disk the message says what is needed, the last checkpoint verifies, nothing is left behind, and the run
goes on when there is space again.

Two ways to run out of space: a limit on the size of a file (works for any user), and a small file system in memory that
only this test's own process can see and that vanishes with it (where the system lets us mount one). 50 sizes each.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SIZES = 50
KILOBYTES = 400


@pytest.mark.parametrize("way", ["limit", "mount"])
def test_a_full_disk_loses_nothing_and_says_what_is_needed(tmp_path, way):
    command = [sys.executable, __file__, way, str(tmp_path)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode == 77:
        pytest.skip(f"NOT RUN: this system lets us mount nothing ({done.stdout.strip()})")
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip())
    assert f"sizes={SIZES} refused={SIZES} explained={SIZES} intact={SIZES} debris=0 resumed=1" in done.stdout


def main(way: str, folder: Path) -> None:
    fill = {"limit": _limited, "mount": _mounted}[way](folder)
    run = folder / "run"
    _save_two(run)
    counts = {"sizes": 0, "refused": 0, "explained": 0, "intact": 0, "debris": 0}
    for size in _sizes():
        empty = fill(size)
        problem = _try_to_save(run)
        empty()
        counts["sizes"] += 1
        counts["refused"] += problem is not None
        counts["explained"] += _is_explained(problem or "", run)
        counts["intact"] += _newest(run) == (2, ())
        counts["debris"] += _debris(run)
    resumed = _try_to_save(run) is None and _newest(run) == (3, ())
    print(f"R5 way={way}", *(f"{name}={count}" for name, count in counts.items()), f"resumed={int(resumed)}")


def _sizes() -> list[int]:
    """From nothing to just too little for the checkpoint."""
    return [i * (KILOBYTES - 20) * 1024 // SIZES for i in range(SIZES)]


def _save_two(run: Path) -> None:
    from echoless.runs import open_run

    with open_run(run) as folder:
        for step in (1, 2):
            folder.append_metrics({"step": step})
            folder.save_checkpoint(step, *_content(step))


def _content(step: int) -> tuple:
    import torch

    weights = torch.full((KILOBYTES * 256,), float(step))
    return {"model": {"w": weights}, "ema": {"w": weights[:10]}}, {"step": step}, {"alphas": [1.0, 0.6]}


def _try_to_save(run: Path) -> str | None:
    from echoless.errors import RunError
    from echoless.runs import RunFolder

    try:
        RunFolder(run).save_checkpoint(3, *_content(3))
    except RunError as error:
        return str(error)
    return None


def _is_explained(message: str, run: Path) -> bool:
    import re

    pattern = rf"^{run}/checkpoints/step-00000003 cannot be written: .* \((\d+) bytes needed, (\d+) bytes free\)$"
    found = re.search(pattern, message)
    return found is not None and int(found[1]) > KILOBYTES * 1024


def _newest(run: Path) -> tuple[int, tuple]:
    from echoless.runs import RunFolder

    found = RunFolder(run).find_latest_valid()
    return found.step, found.skipped


def _debris(run: Path) -> int:
    expected = {"latest", "step-00000001", "step-00000002"}
    return len({path.name for path in (run / "checkpoints").iterdir()} - expected)


def _limited(_: Path):
    """No file may grow beyond a size."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]

    def fill(size: int):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))

    return fill


def _mounted(folder: Path):
    """A file system with room for three checkpoints; a filler leaves as much of it free as asked."""
    _mount_in_private(folder, bytes_=4 * KILOBYTES * 1024)

    def fill(size: int):
        filler = folder / "filler"
        status = os.statvfs(folder)
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, status.f_bavail * status.f_frsize - size))
        return filler.unlink

    return fill


def _mount_in_private(folder: Path, bytes_: int) -> None:
    """Mount memory on `folder` in a mount namespace of our own: nobody else sees it, and it ends with the process."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    new_namespace, private, recursive = 0x00020000, 1 << 18, 1 << 14
    done = (
        libc.unshare(new_namespace) == 0
        and libc.mount(b"none", b"/", None, private | recursive, None) == 0
        and libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, f"size={bytes_}".encode()) == 0
    )
    if not done:
        print(os.strerror(ctypes.get_errno()))
        sys.exit(77)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
