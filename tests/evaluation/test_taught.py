"""Images whose labels trained the encoder are overlap, in every form in which they can be given to `evaluate`.

Fine-tuned runs: tests/verbs/test_finetune.py. Run alone: pytest tests/evaluation/test_taught.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import echoless
from echoless.config.options import PretrainOptions
from echoless.config.words import in_words
from echoless.data import open_images
from echoless.runs import RunFolder
from echoless.runs.taught import MARK, TAUGHT, Taught, add_taught, taught_by
from echoless.verbs.starting import taught_before

QUICK = {"metrics": ("linear",), "baselines": False}


def noise(file: Path, number: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file)


@pytest.fixture(scope="module")
def phone(tmp_path_factory) -> Path:
    """One folder of 80 photographs with two files of labels: L for the first 40, T for the others.

    Beside it, with sub-folders as classes: renamed copies of the first 40, and 16 other photographs.
    """
    root = tmp_path_factory.mktemp("phone")
    for number in range(80):
        noise(root / "phone" / f"{number:02d}.png", number)
    for name, numbers in (("L", range(40)), ("T", range(40, 80))):
        (root / f"{name}.csv").write_text("path,label\n" + "".join(f"{n:02d}.png,{'ab'[n % 2]}\n" for n in numbers))
    for name, numbers in (("first", range(40)), ("others", range(80, 96))):
        for number in numbers:
            noise(root / name / "ab"[number % 2] / f"copy of {number}.png", number)
    return root


@pytest.fixture(scope="module", params=["pretrain", "finetune"])
def supervised(request, phone) -> Path:
    """Trained with the labels of the first 40: by supervised training on renamed copies of them, or by fine-tuning."""
    out, how = phone / f"run by {request.param}", {"max_steps": 1, "batch_size": 8}
    if request.param == "pretrain":
        echoless.pretrain(phone / "first", out=out, recipe="vit-tiny-supervised", depth=2, **how)
        return out
    echoless.pretrain(phone / "phone", out=phone / "plain", recipe="demo", **how)
    sets = {"labels": phone / "L.csv", "test_labels": phone / "T.csv"}
    echoless.finetune(phone / "plain", train=phone / "phone", test=phone / "phone", out=out, **sets, **how)
    return out


@pytest.mark.parametrize(
    ("train", "test", "taught"),
    [("L", None, 40), ("T", None, 0), ("T", "L", 40), ("L", "T", 0), (None, None, 40)],
)
def test_images_whose_labels_trained_the_encoder_are_told_from_others_of_their_folder(
    phone, supervised, train, test, taught
):
    sets = {"train": phone / "phone", "labels": phone / f"{train}.csv"} if train else {}
    sets |= {"test": phone / "phone", "test_labels": phone / f"{test}.csv"} if test else {}
    (metric,) = echoless.evaluate(supervised, **sets, **QUICK)
    assert (metric.n, metric.protocol.get("overlap", 0)) == (40, taught)
    said = "is not a test: 40 of 40 images trained the encoder by their labels"
    assert (said in in_words([metric]).verdict) == bool(taught)


@pytest.mark.parametrize(
    ("learned", "labels", "overlap", "by_label", "why"),
    [
        ("others", "L", 40, 40, "trained the encoder by their labels"),
        ("phone", "T", 40, 0, "are in the training set too"),
        ("phone", "both", 80, 40, "trained the probe or, by label, the encoder"),
    ],
)
def test_a_protocol_tells_images_of_train_from_those_whose_labels_trained_the_encoder(
    phone, supervised, learned, labels, overlap, by_label, why
):
    """Readers could only say that it was one of the two."""
    rows = [line for name in "LT" for line in (phone / f"{name}.csv").read_text().splitlines()[1:]]
    (phone / "both.csv").write_text("\n".join(["path,label", *rows]))
    sets = {"train": phone / learned, "test": phone / "phone", "test_labels": phone / f"{labels}.csv"}
    sets |= {"labels": phone / "both.csv"} if learned == "phone" else {}
    (metric,) = echoless.evaluate(supervised, **sets, **QUICK)
    assert (metric.protocol["overlap"], metric.protocol["overlap_by_label"]) == (overlap, by_label)
    assert f"{overlap} of {overlap} images {why}" in in_words([metric]).verdict


def test_a_run_that_no_labels_trained_records_nothing(phone, tmp_path):
    echoless.pretrain(phone / "phone", out=tmp_path / "run", recipe="demo", max_steps=1, batch_size=8)
    assert not (tmp_path / "run" / TAUGHT).exists() and taught_by(tmp_path / "run", {}) == Taught()


def test_hashes_are_added_and_a_damaged_file_is_not_believed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text("{}")
    one, two = Taught(frozenset({b"a" * 16}), unknown=True), Taught(frozenset({b"b" * 16, b"a" * 16}))
    add_taught(tmp_path, one)
    add_taught(tmp_path, two)
    for inside in (".", "encoder", "snapshots/x"):
        assert taught_by(tmp_path / inside, {}) == one | two == Taught(two.keys, unknown=True)
    (tmp_path / TAUGHT).write_bytes((tmp_path / TAUGHT).read_bytes()[:-1] + b"?")
    assert taught_by(tmp_path, {}) == Taught(unknown=True)


SAID = "it is not recorded of which images"
STEPS = {"max_steps": 1, "batch_size": 8}


def taken(supervised: Path, inside: str, place: Path) -> Path:
    """A part of a run as `cp -r` takes it away, or the run as an earlier version left it."""
    alone = Path(shutil.copytree(supervised / inside, place))
    (alone / TAUGHT).unlink(missing_ok=True)
    if inside == ".":
        described = json.loads((alone / "encoder" / "config.json").read_text())
        assert described["config"].pop(MARK)
        (alone / "encoder" / "config.json").write_text(json.dumps(described))
    return alone


@pytest.mark.parametrize("inside", ["encoder", "checkpoints/step-00000001", "."])
@pytest.mark.parametrize("verb", ["finetune", "pretrain"])
def test_a_run_that_starts_from_weights_of_unknown_labels_says_so_and_hands_it_on(
    verb, inside, phone, supervised, tmp_path, capsys
):
    """It was silent, and its own record made it clean: `evaluate` on the images of those labels was silent too."""
    alone = taken(supervised, inside, tmp_path / "alone" / Path(inside).name)
    sets = {"test": "shapes:16@test", "out": tmp_path / "on"}
    if verb == "finetune":
        echoless.finetune(alone, train="shapes:32", **sets, **STEPS)
    else:
        echoless.pretrain("shapes:32", init=alone, recipe="vit-tiny-supervised", **sets, **STEPS)
    assert SAID in capsys.readouterr().err
    for run in (tmp_path / "on", tmp_path / "on" / "encoder"):
        echoless.evaluate(run, train=phone / "phone", labels=phone / "T.csv", **QUICK)
        assert SAID in capsys.readouterr().out


def test_a_supervised_run_is_not_tested_on_images_whose_labels_trained_its_start(phone, supervised, tmp_path, capsys):
    """Its accuracy had no overlap, and `evaluate` on the same sets then said 40 of 40."""
    sets = {"test": phone / "first", "out": tmp_path / "on"}
    echoless.pretrain(phone / "others", init=supervised, recipe="vit-tiny-supervised", **sets, **STEPS)
    assert "the labels of 40 of the 40 images of --test trained this encoder" in capsys.readouterr().err
    (record,) = RunFolder(tmp_path / "on").read_results()
    assert (record["metric"], record["protocol"]["overlap"]) == ("accuracy", 40)


def test_a_run_of_an_earlier_version_is_known_by_the_fingerprint_of_its_images(phone, supervised, tmp_path, capsys):
    """As a start: it has no record but this. With `--resume --new-data`, its first images are in no record at all."""
    data = RunFolder(supervised).read_config()["data"]
    old, its_own = taken(supervised, ".", tmp_path / "old"), {"test": data["path"], "test_labels": data["labels"]}
    metric = echoless.finetune(old, train=phone / "others", out=tmp_path / "on", **its_own, **STEPS)
    assert metric.protocol["overlap"] == 40 and SAID not in capsys.readouterr().err
    assert not taught_by(tmp_path / "on", {}).unknown
    going_on = PretrainOptions(out=old, resume=True)
    for images, unknown in ((open_images(data["path"]), False), (open_images("shapes:32"), True)):
        assert taught_before(None, going_on, images).unknown == unknown


@pytest.fixture(scope="module")
def handed_on(phone, supervised) -> Path:
    """A run that uses no label, from weights that labels trained; only its `taught.bin` says so, and its marks."""
    out, how = phone / f"on from {supervised.name}", STEPS | {"recipe": "demo"}
    if supervised.name.endswith("pretrain"):
        how |= {"recipe": "mae-tiny", "depth": 2}
    echoless.pretrain(phone / "others", init=supervised, out=out, snapshot_every=1, **how)
    return out


def says_so(source: Path, phone: Path, capsys) -> bool:
    capsys.readouterr()
    echoless.evaluate(source, train=phone / "phone", labels=phone / "L.csv", **QUICK)
    return SAID in capsys.readouterr().out


@pytest.mark.parametrize("inside", ["encoder", "snapshots/step-00000001", "checkpoints/step-00000001"])
def test_weights_that_inherited_labels_say_so_without_their_run(inside, phone, handed_on, tmp_path, capsys):
    """An objective without labels made a copy of the encoder clean."""
    assert says_so(Path(shutil.copytree(handed_on / inside, tmp_path / "alone" / Path(inside).name)), phone, capsys)


@pytest.mark.parametrize("to", ["hf", "timm"])
def test_exported_weights_say_that_labels_trained_them_and_so_do_runs_that_start_there(
    to, phone, supervised, handed_on, tmp_path, capsys
):
    for number, run in enumerate((supervised, handed_on)):
        out = tmp_path / f"{to}{number}"
        echoless.export(run, to=to, out=out, tolerance=0.1)
        assert taught_by(out, {}) == taught_by(out / "model.safetensors", {}) == Taught(unknown=True)
    if to == "timm":  # which is not there to open it
        assert (
            taught_by(Path(f"local-dir:{out}"), {})
            == taught_by(Path(f"timm:local-dir:{out}"), {})
            == Taught(unknown=True)
        )
        assert taught_by(Path("timm:vit_tiny"), {}) == Taught()
        return
    assert says_so(out, phone, capsys)
    echoless.import_(out, out=tmp_path / "imported")
    assert says_so(tmp_path / "imported", phone, capsys)
    echoless.finetune(out, train="shapes:16", test="shapes:16@test", out=tmp_path / "on", **STEPS)
    assert SAID in capsys.readouterr().err


def test_weights_that_no_labels_trained_are_not_marked(phone, supervised, tmp_path):
    """Their files are those of earlier versions, byte for byte."""
    echoless.pretrain(phone / "phone", out=tmp_path / "run", recipe="demo", **STEPS)
    echoless.export(tmp_path / "run", to="hf", out=tmp_path / "hf", tolerance=0.1)
    written = [*(tmp_path / "run").rglob("*.json"), tmp_path / "hf" / "config.json"]
    assert len(written) > 4 and not any(MARK in file.read_text() for file in written)


@pytest.mark.parametrize(
    ("place", "beside"),
    [("enc", ()), ("encoder", ()), ("checkpoints/step-00000001", ()), ("enc", ("config.json", "about.json"))],
)
def test_a_neighbour_is_not_the_run_of_an_encoder(place, beside, supervised, tmp_path, monkeypatch):
    """A folder `checkpoints` beside it, or the folder in which the command was given, was taken for its run."""
    shutil.copytree(supervised / "encoder", tmp_path / "proj" / place)
    (tmp_path / "proj" / "checkpoints").mkdir(exist_ok=True)
    for name in beside:
        (tmp_path / "proj" / name).write_text("{}")
    monkeypatch.chdir(tmp_path / "proj")
    for path in (tmp_path / "proj" / place, Path(place), Path("../proj") / place):
        assert taught_by(path, {}) == Taught(unknown=True)
