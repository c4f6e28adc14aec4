"""R22: a number names its data. Numbers of different sets stand side by side and are never compared.

Run alone: pytest tests/reliability/test_r22_sets.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import echoless
from echoless.errors import DataError
from echoless.measures.outcomes import unpack
from echoless.reports.collect import collect_all
from echoless.reports.compare import comparable, compare, groups_of
from echoless.runs import RunFolder

QUICK = {"metrics": ("knn",), "baselines": False, "k": (3,)}


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "run"
    echoless.pretrain("shapes:64", out=out, recipe="demo", max_steps=2, batch_size=16)
    return out


def noise(root: Path, seed: int, size: int = 16, classes: int = 2) -> Path:
    """Labelled noise: files of equal names and sizes whatever the seed."""
    for number in range(20):
        place = root / f"class{number % classes}" / f"{number:02d}.bmp"
        place.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng([seed, number]).integers(0, 256, (size, size, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place)
    return root


def test_noise_with_random_labels_is_at_chance_and_not_at_100_percent(run, tmp_path):
    """Two folders of equal names and sizes shared their features, and every test image was its own neighbour."""
    sets = {"train": noise(tmp_path / "train", 0), "test": noise(tmp_path / "test", 1)}
    metrics = echoless.evaluate(run, **sets, metrics=("knn",), k=(3,))
    (pixels,) = [metric for metric in metrics if metric.protocol["features"] == "raw pixels"]
    assert pixels.value < 0.95


def test_every_number_names_its_sets_their_labels_and_the_chance_level(run, tmp_path):
    (metric,) = echoless.evaluate(run, train="shapes:60", test="shapes:30@test", **QUICK)
    protocol = metric.protocol
    assert (protocol["train"], protocol["test"], protocol["labels"]) == ("shapes:60", "shapes:30@test", "the data set")
    assert len(protocol["train_set"]) == len(protocol["test_set"]) == 12 and "overlap" not in protocol
    assert 0.1 <= protocol["chance"] <= 0.4
    (folder,) = echoless.evaluate(run, train=noise(tmp_path / "photos", 0), **QUICK)
    assert (folder.protocol["train"], folder.protocol["labels"], folder.protocol["chance"]) == (
        "photos",
        "sub-folders",
        0.5,
    )


def test_a_second_set_does_not_replace_the_first_and_the_same_set_under_another_name_does(run, tmp_path):
    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    (copy / "results.json").unlink(missing_ok=True)
    first, second = noise(tmp_path / "first", 0), noise(tmp_path / "second", 1)
    for data in (first, second, shutil.copytree(first, tmp_path / "copy of first")):
        echoless.evaluate(copy, train=data, **QUICK)
    results = RunFolder(copy).read_results()
    assert [record["protocol"]["train"] for record in results] == ["second", "copy of first"], "the newest is last"


def test_runs_measured_on_different_sets_are_never_compared(run, tmp_path):
    runs = []
    for seed, name in enumerate(("one", "other")):
        runs.append(tmp_path / name)
        echoless.pretrain(
            "shapes:64", out=runs[-1], recipe="demo", max_steps=2, batch_size=16, alpha_min=0.6 + seed / 5
        )
        echoless.evaluate(runs[-1], train=noise(tmp_path / f"set {name}", seed), **QUICK)
    assert compare(groups_of(collect_all(runs))) == []
    for each in runs:
        echoless.evaluate(each, train="shapes:60", **QUICK)
    (row,) = compare(groups_of(collect_all(runs)))
    assert row.protocol["train_set"] and "train" not in row.protocol
    one, other = (RunFolder(each).read_results()[-1] for each in runs)
    assert [unpack(each["right"], 60).double().mean() for each in (one, other)] == [one["value"], other["value"]]
    paired = row.differences[1]
    assert paired.images == 60 and paired.value == pytest.approx(other["value"] - one["value"])


def test_a_number_on_overlapping_sets_says_so_and_is_never_a_headline(run):
    (metric,) = echoless.evaluate(run, train="shapes:60", test="shapes:40", **QUICK)
    assert metric.protocol["overlap"] == 40 and not comparable(metric)


def test_finetune_warns_of_overlap(run, tmp_path, capsys):
    echoless.finetune(run, train="shapes:48", test="shapes:32", out=tmp_path / "t", max_steps=1, batch_size=16)
    assert "32 of 32 images of --test are in --train too" in capsys.readouterr().err


def test_finetune_refuses_classes_that_are_absent_from_training(run, tmp_path):
    """Also where the data set names them: a parquet file lists all its classes, whichever rows it has."""
    train, test = noise(tmp_path / "train", 0, 32), noise(tmp_path / "test", 1, 32, classes=3)
    with pytest.raises(DataError, match="classes that the training set lacks: class2"):
        echoless.finetune(run, train=train, test=test, out=tmp_path / "tuned", max_steps=1)


def test_more_photographs_without_a_label_are_the_same_sets(run, tmp_path):
    """Next month's photographs have no labels yet: kNN was equal to the digit, and no table compared it."""
    photos = noise(tmp_path / "photos", 0)
    files = sorted(photos.rglob("*.bmp"))
    labels = tmp_path / "labels.csv"
    rows = [f"{file.relative_to(photos)},{number % 2}" for number, file in enumerate(files)]
    labels.write_text("\n".join(["path,label", *rows]))

    def measured() -> dict:
        (metric,) = echoless.evaluate(run, train=photos, labels=labels, **QUICK)
        return {name: metric.protocol[name] for name in ("train_set", "label_set")} | {"value": metric.value}

    before = measured()
    for name in ("class0/00_new.bmp", "class1/zz_new.bmp"):
        Image.fromarray(np.full((16, 16, 3), 99, np.uint8)).save(photos / name)
    assert measured() == before
    labels.write_text("\n".join(["path,label", *rows[1:]]))
    fewer = measured()
    assert fewer["train_set"] != before["train_set"] and fewer["label_set"] != before["label_set"]
