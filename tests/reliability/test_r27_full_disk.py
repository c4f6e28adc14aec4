"""R27: a full disk in any verb that writes is one sentence: no signal, no traceback, no half-written file.

A limit on the size of files stands for the full disk: it needs no privileges, and a write beyond it fails alike.
Run alone: pytest tests/reliability/test_r27_full_disk.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import echoless

LIMITED = """
import resource, signal, sys
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
from echoless.cli.main import main
sys.exit(main(sys.argv[2:]))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    echoless.pretrain("shapes:64", out=home / "run", recipe="demo", max_steps=1, batch_size=16)
    echoless.pretrain("shapes:64", out=home / "sit", recipe="sit-tiny", max_steps=1, batch_size=8, width=64, depth=2)
    echoless.export(home / "run", to="hf", out=home / "encoder")
    return home


def files_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


VERBS = {
    "evaluate": "evaluate run --train shapes:400 --metrics knn --no-baselines",
    "embed to parquet": "embed run shapes:400 --out vectors.parquet",
    "embed to npy": "embed run shapes:400 --out vectors.npy",
    "embed to csv": "embed run shapes:400 --out vectors.csv",
    "sample": "sample sit --out samples --n 64 --steps 1",
    "export": "export run --to hf --out exported",
    "import": "import encoder --out imported",
    "report": "report run --out page.html",
    "pretrain": "pretrain shapes:64 --out another --recipe demo --max-steps 1 --batch-size 16",
    "finetune": "finetune run --train shapes:64 --test shapes:32@test --out tuned --max-steps 1 --batch-size 16",
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_is_one_sentence(home, verb):
    before = files_below(home)
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "40000", *VERBS[verb].split()],
        cwd=home,
        capture_output=True,
        text=True,
        env=os.environ | {"ECHOLESS_CACHE": str(home / "cache")},
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    said = [line for line in done.stderr.splitlines() if line.startswith("echoless ")]
    assert len(said) == 1 and "cannot be written" in said[0] and "Traceback" not in done.stderr, done.stderr
    halves = {name for name in files_below(home) - before if ".tmp-" in name or ".old-" in name}
    print(f"full disk: {verb}: exit code 2, debris {len(halves)}")
    assert not halves
