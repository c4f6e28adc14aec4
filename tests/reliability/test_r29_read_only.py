"""R29: a run, a cache or a folder that may only be read is used, or refused in one sentence before any work.

Run alone: pytest tests/reliability/test_r29_read_only.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import echoless
from echoless.config.options import EvaluateOptions
from echoless.errors import RunError

QUICK = {"train": "shapes:60", "metrics": ("knn", "tsne"), "baselines": False, "k": (3,)}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    echoless.pretrain("shapes:64", out=out, recipe="demo", max_steps=2, batch_size=16)
    return out


@pytest.fixture
def protect(monkeypatch):
    """Whoever runs the tests may write everywhere; the answer to the question whether it may is that of a stranger."""

    def protect(*folders: Path) -> None:
        real, below = os.access, tuple(map(str, folders))
        monkeypatch.setattr(os, "access", lambda path, mode: real(path, mode) and not str(path).startswith(below))

    return protect


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("cached", [True, False], ids=["cache", "no cache"])
def test_a_run_of_somebody_else_is_measured_and_left_as_it_is(run, tmp_path, monkeypatch, protect, cached):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "cache"))
    protect(run, *([] if cached else [tmp_path / "cache"]))
    (tmp_path / "cache").mkdir()
    before, said = contents(run), []
    metrics = echoless.evaluate.run(EvaluateOptions(str(run), **QUICK), said.append)
    assert metrics[0].metric == "knn" and said[0] == f"{run} is read-only: the numbers are printed, and not kept in it"
    assert contents(run) == before
    assert (tmp_path / "cache" / "features").exists() == cached
    assert list((tmp_path / "echoless-figures").glob("tsne*"))


def test_a_folder_that_cannot_be_written_is_refused_before_any_work(tmp_path, protect):
    protect(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    for verb in (echoless.demo, echoless.conditioning):
        with pytest.raises(RunError, match=r"mine/new cannot be written: permission denied"):
            verb(out=tmp_path / "mine" / "new")
    assert not list((tmp_path / "mine").iterdir())
