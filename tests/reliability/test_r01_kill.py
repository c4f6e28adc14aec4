"""R1, R2: SIGKILL at random instants, resume: weights, moments, averages and the loss log end up bitwise equal, and no
more work is lost than one checkpoint interval.

    pytest tests/reliability/test_r01_kill.py -s
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parent / "kill.py"


def kill_runs(folder: Path, kills: int, *options: str) -> str:
    """What kill.py printed; it must have killed that often, and every run must have ended as the undisturbed one."""
    done = subprocess.run(
        [sys.executable, SCRIPT, folder, "--kills", str(kills), *options],
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(folder / "cache")},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    print(done.stdout.strip())
    assert int(re.search(r"kills=(\d+)", done.stdout)[1]) >= kills
    assert "mismatches=0" in done.stdout
    return done.stdout


def test_five_kills_lose_nothing(tmp_path):
    assert "runs=" in kill_runs(tmp_path, 5, "--workers", "2")


def test_a_foreign_body_that_fades_in_survives_kills(tmp_path):
    assert "foreign" in kill_runs(tmp_path, 2, "--steps", "8", "--objective", "foreign")


@pytest.mark.parametrize("objective", ["dino", pytest.param("infonce", marks=pytest.mark.slow)])
def test_teacher_centre_and_slow_copy_survive_kills(objective, tmp_path):
    assert objective in kill_runs(tmp_path, 2, "--steps", "8", "--objective", objective)


@pytest.mark.parametrize("objective", [pytest.param("uvit", marks=pytest.mark.slow), "sit"])
def test_diffusion_survives_kills(objective, tmp_path):
    assert objective in kill_runs(tmp_path, 2, "--steps", "8", "--objective", objective)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["foreign", "infonce", "dino", "uvit", "sit"])
def test_every_other_objective_survives_many_kills(objective, tmp_path):
    assert objective in kill_runs(tmp_path, 20, "--workers", "2", "--objective", objective)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_two_hundred_kills_lose_nothing(tmp_path):
    in_save = kills = 0
    for workers, seed in ((0, 1), (2, 2)):
        folder = tmp_path / str(workers)
        folder.mkdir()
        evidence = kill_runs(folder, 100, "--workers", str(workers), "--seed", str(seed))
        kills += int(re.search(r"kills=(\d+)", evidence)[1])
        in_save += int(re.search(r"in_save=(\d+)", evidence)[1])
    print(f"R1 kills={kills} in_save={in_save} mismatches=0")
    assert kills >= 200 and in_save >= 20
