"""R25: only what a verb wrote is removed by it. Files of others in an output folder survive every verb and flag.

Run alone: pytest tests/reliability/test_r25_strangers.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

import echoless
from echoless.errors import RunError


@pytest.fixture(scope="module")
def home(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("home")
    pretrain(home / "run")
    echoless.pretrain("shapes:32", out=home / "sit", recipe="sit-tiny", max_steps=1, batch_size=8, width=64, depth=2)
    return home


def pretrain(out: Path, **options) -> None:
    echoless.pretrain("shapes:32", out=out, recipe="demo", max_steps=1, batch_size=8, **options)


PLACES = (
    *("thesis.pdf", "notes/thesis.pdf", "figures/thesis.pdf", "figures/tsne-notes.txt", "samples/mine/photo.jpg"),
    *("samples/mine/2024-holiday.png", "checkpoints/thesis.pdf", "encoder/thesis.pdf", "features/thesis.pdf"),
    *("snapshots/best/thesis.pdf", "tensorboard/thesis.pdf"),
)


@pytest.mark.parametrize("place", PLACES)
def test_overwriting_a_run_refuses_to_delete_a_stranger(home, place):
    mine = home / "run" / place
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("years of work")
    with pytest.raises(RunError, match=f"is not overwritten: it also holds {place}; move that away"):
        pretrain(home / "run", overwrite=True)
    assert mine.read_text() == "years of work"
    mine.unlink()


@pytest.mark.parametrize("place", ["thesis.pdf", "parts/thesis.npy", "photo.png", "2024-holiday.png"])
def test_overwriting_samples_refuses_to_delete_a_stranger(home, place, tmp_path):
    drawn = tmp_path / "samples"
    echoless.sample(home / "sit", out=drawn, n=2, steps=1)
    mine = drawn / place
    mine.parent.mkdir(parents=True, exist_ok=True)
    mine.write_text("years of work")
    with pytest.raises(RunError, match=f"is not overwritten: it also holds {place}; move that away"):
        echoless.sample(home / "sit", out=drawn, n=2, steps=1, overwrite=True)
    assert mine.read_text() == "years of work"
    mine.unlink()
    assert echoless.sample(home / "sit", out=drawn, n=3, steps=1, overwrite=True) == 3


def test_everything_that_the_verbs_write_into_a_run_may_be_replaced(home):
    """Otherwise --overwrite would refuse our own files."""
    run = home / "run"
    pretrain(run, overwrite=True, snapshot_every=1)
    wanted = ("knn", "rank", "spectral", "tsne", "reconstruct")
    echoless.evaluate(run, train="shapes:40", metrics=wanted, images=12, snapshots=True)
    echoless.report([run], out=run / "report.html")
    pretrain(run, overwrite=True)
    assert not (run / "results.json").exists() and not (run / "features").exists()
