"""A start that is refused changes nothing: neither the run that was to be replaced nor the record of the one in --out.

Run alone: pytest tests/reliability/test_r28_refused_starts.py
"""

from __future__ import annotations

from pathlib import Path

import pytest

import echoless
from echoless.errors import EcholessError
from echoless.runs import RunFolder

TINY = {"recipe": "demo", "batch_size": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    echoless.pretrain("shapes:64", out=out, max_steps=4, seed=5, **TINY)
    return out


def content(run: Path) -> dict[str, bytes]:
    files = [path for path in run.rglob("*") if path.is_file() and path.name not in ("log.txt", ".lock")]
    return {str(path.relative_to(run)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "options",
    [
        {"alpha_min": 0.9, "checkpoint_every": 7, "max_steps": 9},
        {"max_steps": 2},
        {"depth": 4, "max_steps": 9},
        {"recipe": "auto"},
    ],
    ids=str,
)
def test_a_refused_resume_changes_nothing(run, options):
    before = content(run)
    with pytest.raises(EcholessError):
        echoless.pretrain("shapes:64", out=run, resume=True, **options)
    assert content(run) == before


def test_a_complete_run_keeps_its_record_whatever_it_is_resumed_with(run):
    before = content(run)
    assert echoless.pretrain("shapes:128", out=run, resume=True, checkpoint_every=7)
    assert content(run) == before


def test_an_overwrite_whose_start_is_refused_replaces_nothing(run, tmp_path):
    other = tmp_path / "other"
    echoless.pretrain("shapes:64", out=other, max_steps=1, depth=3, **TINY)
    before = content(run)
    with pytest.raises(EcholessError, match="does not fit"):
        echoless.pretrain("shapes:64", out=run, overwrite=True, init=other, depth=4, max_steps=1, **TINY)
    assert content(run) == before


def test_numbers_of_weights_that_are_trained_on_are_set_aside(run, tmp_path):
    out = tmp_path / "run"
    echoless.pretrain("shapes:64", out=out, max_steps=2, **TINY)
    echoless.evaluate(out, train="shapes:40", metrics="knn", baselines=False)
    (metric,) = RunFolder(out).read_results()
    echoless.pretrain("shapes:64", out=out, max_steps=3, resume=True)
    assert RunFolder(out).read_results() == []
    assert (out / "results-step-00000002.json").is_file() and metric["metric"] == "knn"


def test_other_labels_are_another_number(run, tmp_path):
    """The images are the same, so their fingerprint does not tell."""
    from PIL import Image

    for number in range(24):
        Image.new("RGB", (32, 32), (10 * number, 0, 0)).save(tmp_path / f"{number:02d}.png")
    values = []
    for name, label in (("a.csv", lambda n: n % 2), ("b.csv", lambda n: n % 3)):
        (tmp_path / name).write_text("".join(f"{n:02d}.png,{label(n)}\n" for n in range(24)))
        values += echoless.evaluate(run, train=tmp_path, labels=tmp_path / name, metrics="knn", k=(3,), baselines=False)
    first, second = (metric.protocol for metric in values)
    assert first["train_set"] == second["train_set"] and first["label_set"] != second["label_set"]
    kept = [record for record in RunFolder(run).read_results() if record["protocol"].get("labels") == "a labels file"]
    assert len(kept) == 2
