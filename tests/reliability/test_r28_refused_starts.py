"""A start that is refused changes nothing: neither the run that was to be replaced nor the record of the one in --out.

Run alone: pytest tests/reliability/test_r28_refused_starts.py
"""

from __future__ import annotations

from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from PIL import Image

import echoless
from echoless.errors import DataError, EcholessError
from echoless.runs import RunFolder

TINY = {"recipe": "demo", "batch_size": 16}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    echoless.pretrain("shapes:64", out=out, max_steps=4, seed=5, **TINY)
    return out


def content(run: Path) -> dict[str, bytes]:
    files = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
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


def test_a_refused_resume_logs_nothing_and_an_accepted_one_everything(tmp_path):
    """The opening lines of a start that was refused stood in log.txt, as if it had begun."""
    out = tmp_path / "run"
    echoless.pretrain("shapes:64", out=out, max_steps=2, **TINY)
    first = (out / "log.txt").read_text()
    with pytest.raises(EcholessError, match="steps is 1"):
        echoless.pretrain("shapes:64", out=out, resume=True, max_steps=1)
    with pytest.raises(EcholessError, match="strict"):
        echoless.pretrain("shapes:32", out=out, resume=True, new_data=True, max_steps=3, strict=True)
    assert (out / "log.txt").read_text() == first
    assert echoless.pretrain("shapes:64", out=out, resume=True, max_steps=3)
    lines = (out / "log.txt").read_text().removeprefix(first).splitlines()
    opening = [line.partition(" ")[0] for line in lines[:5]]
    assert opening == ["data:", "model:", "shortcuts:", "run:", "labels:"]
    assert "resuming after step 2 of 3" in lines[5:] and lines[-1].startswith("done: 3 steps")


def test_a_complete_run_keeps_its_record_whatever_it_is_resumed_with(run, capsys):
    before = content(run)
    assert echoless.pretrain("shapes:64", out=run, resume=True, checkpoint_every=7)
    assert "nothing was trained" not in capsys.readouterr().err
    assert echoless.pretrain("shapes:128", out=run, resume=True, checkpoint_every=7, new_data=True)
    assert "nothing was trained on the images given now: give --max-steps above " in capsys.readouterr().err
    logged = content(run).pop("log.txt")
    assert logged.startswith(before["log.txt"]) and content(run) == before | {"log.txt": logged}


@pytest.mark.parametrize("steps", [None, 9])
def test_other_images_are_refused_unless_it_is_said_that_they_are_new(run, steps):
    """A mistyped DATA mixed two sets in one run. Also of a complete run, which would be said to be of them."""
    before = content(run)
    both = r"\(128 images, fingerprint [0-9a-f]{12}\), but the run being resumed was trained on 'shapes:64' \(64 images"
    with pytest.raises(DataError, match=rf"^data is 'shapes:128' {both}.*; give the same images, or --new-data to"):
        echoless.pretrain("shapes:128", out=run, resume=True, max_steps=steps)
    assert content(run) == before


def test_images_that_changed_in_their_place_are_other_images(tmp_path):
    """Added, removed or replaced: the folder is the same. A copy of it elsewhere holds the same images."""
    for number in range(24):
        levels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        (tmp_path / "photos").mkdir(exist_ok=True)
        Image.fromarray(levels).save(tmp_path / "photos" / f"{number}.png")
    out = tmp_path / "run"
    echoless.pretrain(tmp_path / "photos", out=out, max_steps=2, **TINY)
    copytree(tmp_path / "photos", tmp_path / "copy")
    assert echoless.pretrain(tmp_path / "copy", out=out, max_steps=3, resume=True)
    (tmp_path / "photos" / "23.png").unlink()
    with pytest.raises(DataError, match=r"photos' \(23 images, .* was trained on '.*copy' \(24 images"):
        echoless.pretrain(tmp_path / "photos", out=out, max_steps=4, resume=True)
    assert echoless.pretrain(tmp_path / "photos", out=out, max_steps=4, resume=True, new_data=True)
    assert echoless.pretrain(tmp_path / "photos", out=out, max_steps=5, resume=True), "they are the run's now"


def test_a_fine_tuning_that_is_resumed_keeps_its_images_too(run, tmp_path):
    out, sets = tmp_path / "ft", {"test": "shapes:20@test", "batch_size": 16}
    echoless.finetune(run, train="shapes:48", out=out, max_steps=1, **sets)
    before = content(out)
    with pytest.raises(DataError, match=r"^train is 'shapes:32' .* was trained on 'shapes:48' .* or --new-data"):
        echoless.finetune(run, train="shapes:32", out=out, max_steps=2, resume=True, **sets)
    assert content(out) == before
    assert echoless.finetune(run, train="shapes:32", out=out, max_steps=2, resume=True, new_data=True, **sets)


@pytest.mark.parametrize("steps", [None, 9])
def test_images_of_other_channels_are_refused_before_anything_is_recorded(run, tmp_path, steps):
    """Also by a complete run, and by --config, which repeats the network of a run."""
    np.savez(tmp_path / "five.npz", x=np.zeros((64, 32, 32, 5), np.uint8))
    before = content(run)
    with pytest.raises(DataError, match=r"^DATA has images of 5 channels; allowed: 3, as the model takes$"):
        echoless.pretrain(tmp_path / "five.npz", out=run, resume=True, max_steps=steps)
    assert content(run) == before
    with pytest.raises(DataError, match=r"^DATA has images of 5 channels; allowed: 3, as the model takes$"):
        echoless.pretrain(tmp_path / "five.npz", config=run, out=tmp_path / "again", max_steps=steps)
    assert not (tmp_path / "again").exists()


@pytest.mark.parametrize("recipe", ["vit-tiny-supervised", "sit-tiny"])
def test_images_of_more_classes_are_refused_before_anything_is_recorded(tmp_path, recipe):
    for classes in (2, 3):
        levels = np.random.default_rng(classes).integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
        np.savez(tmp_path / f"{classes}.npz", x=levels, y=np.arange(24) % classes)
    out = tmp_path / "run"
    echoless.pretrain(tmp_path / "2.npz", out=out, recipe=recipe, max_steps=1, batch_size=4, depth=2)
    before = content(out)
    with pytest.raises(DataError, match=r"^DATA has 3 classes; allowed: at most 2, as the model has$"):
        echoless.pretrain(tmp_path / "3.npz", out=out, max_steps=2, resume=True)
    assert content(out) == before


@pytest.mark.parametrize("data", ["shapes:96", "wider.npz"])
def test_a_run_goes_on_with_new_images_of_another_number_or_size_and_says_so(tmp_path, capsys, data):
    """Those of the first start may be gone, or may have become more: then --new-data is given."""
    out = tmp_path / "run"
    echoless.pretrain("shapes:64", out=out, max_steps=2, **TINY)
    levels = np.random.default_rng(0).integers(0, 256, (48, 40, 56, 3), dtype=np.uint8)
    np.savez(tmp_path / "wider.npz", x=levels)
    other = data if data.startswith("shapes") else tmp_path / data
    assert echoless.pretrain(other, out=out, max_steps=4, resume=True, new_data=True)
    said = capsys.readouterr().err
    assert "data.count: 64 in the record" in said and "(other images, so other results)" in said
    assert echoless.pretrain(out=out, max_steps=5, resume=True)


def test_an_overwrite_whose_start_is_refused_replaces_nothing(run, tmp_path):
    other = tmp_path / "other"
    echoless.pretrain("shapes:64", out=other, max_steps=1, depth=3, **TINY)
    before = content(run)
    with pytest.raises(EcholessError, match="does not fit"):
        echoless.pretrain("shapes:64", out=run, overwrite=True, init=other, depth=4, max_steps=1, **TINY)
    assert content(run) == before


def test_numbers_of_weights_that_are_trained_on_are_set_aside_which_is_said(run, tmp_path, capsys):
    out = tmp_path / "run"
    echoless.pretrain("shapes:64", out=out, max_steps=2, **TINY)
    echoless.evaluate(out, train="shapes:40", metrics="knn", baselines=False)
    (metric,) = RunFolder(out).read_results()
    echoless.pretrain("shapes:64", out=out, max_steps=3, resume=True)
    assert "measured so far are kept in results-step-00000002.json" in capsys.readouterr().err
    assert "measured so far are kept in results-step-00000002.json" in (out / "log.txt").read_text()
    echoless.pretrain("shapes:64", out=out, max_steps=4, resume=True)
    assert "results-step" not in capsys.readouterr().err, "nothing was measured after step 3"
    assert RunFolder(out).read_results() == []
    assert (out / "results-step-00000002.json").is_file() and metric["metric"] == "knn"


def test_other_labels_are_another_number(run, tmp_path):
    """The images are the same, so their fingerprint does not tell."""
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
