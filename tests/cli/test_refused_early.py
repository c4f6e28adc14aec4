"""A wrong path or a run folder in use is refused before torch is loaded: the answer takes a fraction of a second."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT_TORCH = """
import sys
from echoless.cli.main import main
code = main(sys.argv[1:])
assert not {"torch", "numpy", "pyarrow"} & set(sys.modules), "a heavy library was loaded"
sys.exit(code)
"""


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("pretrain nowhere --out new", "data 'nowhere' does not exist; allowed: a folder of images"),
        ("pretrain shapes --out run", "run is not empty (it holds a run); give --resume"),
        ("pretrain shapes --out file", "file is not a folder; give --out a folder"),
        ("pretrain shapes --out run --resume --overwrite", "run cannot be both resumed and overwritten"),
        ("pretrain shapes --out new --recipe mea-tiny", "recipe is 'mea-tiny'; allowed: "),
        ("pretrain shapes --out new --epochs 1 --max-steps 2", "either epochs or max_steps, not both"),
        ("pretrain shapes --out new --alpha-min 2", "alpha_min is 2.0; allowed: a number in [0, 1]"),
        ("finetune run --train nowhere --test shapes --out new", "data 'nowhere' does not exist"),
        ("finetune run --train shapes --test shapes --out run", "run is not empty (it holds a run)"),
        ("pretrain shapes --out new --test-labels a.csv", "test_labels is 'a.csv', but --test is missing"),
        ("sweep shapes --out new --test-labels a.csv", "test_labels is 'a.csv', but --test is missing"),
        (
            "sweep shapes --out new --paper fig7 --alpha-min 0.5",
            "alpha_min is (0.5,), but the experiment fig7 sets its own",
        ),
        ("sweep shapes --out new --paper fig7 --max-steps 5", "max_steps is 5, but the experiment fig7 sets its own"),
        ("sweep shapes --out new --scale cpu", "scale is 'cpu', but it applies only with --paper"),
        ("embed run nowhere --out f.npy", "data 'nowhere' does not exist"),
        ("sweep nowhere --out new", "data 'nowhere' does not exist"),
        ("evaluate run --train nowhere", "data 'nowhere' does not exist"),
        ("evaluate nowhere --train shapes", "nowhere does not exist; give a run"),
        ("embed nowhere shapes --out f.npy", "nowhere does not exist; give a run"),
        ("demo --out file", "--out is file, which is a file; give a folder"),
        ("conditioning --out file", "--out is file, which is a file; give a folder"),
        ("conditioning nowhere --out new", "data 'nowhere' does not exist"),
    ],
)
def test_it_is_one_sentence_and_no_heavy_library_is_loaded(words, sentence, tmp_path: Path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text("{}")
    (tmp_path / "file").write_text("mine")
    command = [sys.executable, "-c", WITHOUT_TORCH, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2, done.stderr
    assert done.stderr.count("\n") == 1 and sentence in done.stderr
    assert not (tmp_path / "new").exists()


def test_a_world_size_that_is_no_number_is_one_sentence(tmp_path: Path):
    """Whoever refuses it, it is not the early checks, which must not fall over it."""
    for words in ("pretrain shapes:8 --out new --recipe demo", "embed nowhere nowhere --out f.npy"):
        done = subprocess.run(
            [sys.executable, "-m", "echoless", *words.split()],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=os.environ | {"WORLD_SIZE": "x"},
        )
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
        assert "WORLD_SIZE is 'x' in the environment; allowed: a whole number" in done.stderr
    assert not (tmp_path / "new").exists()
