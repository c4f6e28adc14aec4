"""Without the modules and calls that Windows does not have: every module is imported, and a run trains, is continued,
embedded and shown. This is a simulation: no test here ran on Windows or macOS.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCE = HERE.parent.parent / "src" / "echoless"
MODULES = sorted(
    ".".join(("echoless", *file.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")
    for file in SOURCE.rglob("*.py")
    if file.stem != "__main__"
)


def test_every_module_is_imported():
    code = (
        "import importlib, sys\n"
        f"sys.path.insert(0, {str(HERE)!r})\n"
        "import windowless\n"
        "windowless.take_away()\n"
        f"for name in {MODULES!r}: importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(MODULES) > 200


@pytest.mark.slow
def test_a_run_is_trained_continued_embedded_and_shown(tmp_path):
    run = tmp_path / "run"
    small = ("--recipe", "demo", "--batch-size", "8", "--no-compile")
    for words in (
        ("pretrain", "shapes:40", "--out", run, "--max-steps", "2", *small),
        ("pretrain", "--out", run, "--max-steps", "3", "--resume"),
        ("evaluate", run, "--metrics", "knn", "rank"),
        ("embed", run, "shapes:40", "--out", tmp_path / "features.parquet"),
        ("report", run, "--out", tmp_path / "report.html"),
        ("doctor",),
        ("runs", "rm", run, "--yes"),
    ):
        command = [sys.executable, str(HERE / "windowless.py"), *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, (words, done.stderr)
    assert (tmp_path / "features.parquet").exists() and not run.exists()
