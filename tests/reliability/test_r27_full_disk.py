"""R27: a full disk in any verb that writes is one sentence: no signal, no traceback, no half-written file.

A limit on the size of files stands for the full disk: it needs no privileges, and a write beyond it fails alike.
Run alone: pytest tests/reliability/test_r27_full_disk.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import echoless

# All verbs in one process, because torch takes seconds to import.
LIMITED = """
import contextlib, io, json, resource, signal, sys
from pathlib import Path
from echoless.cli.main import main
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]), resource.RLIM_INFINITY))
before = set(Path.cwd().rglob("*"))
for words in sys.argv[2:]:
    with contextlib.redirect_stderr(io.StringIO()) as said, contextlib.redirect_stdout(io.StringIO()):
        code = main(words.split())
    left = [path.name for path in set(Path.cwd().rglob("*")) - before if ".tmp-" in path.name or ".old-" in path.name]
    print(json.dumps({"code": code, "said": said.getvalue(), "left": left}))
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    echoless.pretrain("shapes:64", out=home / "run", recipe="demo", max_steps=1, batch_size=16)
    echoless.pretrain("shapes:64", out=home / "sit", recipe="sit-tiny", max_steps=1, batch_size=8, width=64, depth=2)
    echoless.export(home / "run", to="hf", out=home / "encoder")
    return home


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


@pytest.fixture(scope="module")
def outcomes(home) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, "40000", *VERBS.values()],
        cwd=home,
        capture_output=True,
        text=True,
        env=os.environ | {"ECHOLESS_CACHE": str(home / "cache")},
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(VERBS, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("verb", VERBS)
def test_a_full_disk_is_one_sentence(outcomes, verb):
    outcome = outcomes[verb]
    assert outcome["code"] == 2, outcome
    sentences = [line for line in outcome["said"].splitlines() if line.startswith("echoless ")]
    assert len(sentences) == 1 and "cannot be written" in sentences[0] and "Traceback" not in outcome["said"], outcome
    print(f"full disk: {verb}: exit code 2, debris {len(outcome['left'])}")
    assert not outcome["left"]
