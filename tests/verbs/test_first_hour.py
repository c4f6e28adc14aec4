"""The first hour of a stranger: refused starts, parents, a full disk, few labels, tables for others, killed runs.

Run alone: pytest tests/verbs/test_first_hour.py
"""

from __future__ import annotations

import csv
import json
import shutil
from collections import namedtuple
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import echoless
from echoless.cli.main import main
from echoless.data import open_images
from echoless.errors import DataError, RunError
from echoless.exchange.card import _results
from echoless.reports.collect import collect
from echoless.reports.compare import readable_settings
from echoless.reports.facts import status
from echoless.reports.gallery import card
from echoless.reports.page import render
from echoless.runs import open_run
from echoless.runtime import Progress
from echoless.verbs.runs import runs

SMALL = {"recipe": "demo", "max_steps": 2, "batch_size": 4, "patch_size": 16, "workers": 0}


@pytest.fixture(scope="module")
def photos(tmp_path_factory) -> Path:
    """Flat, with two broken files of twelve: more than the fraction that pretraining accepts unasked."""
    folder = tmp_path_factory.mktemp("photos")
    pixels = np.random.default_rng(0)
    for index in range(10):
        Image.fromarray(pixels.integers(0, 256, (40, 32, 3), dtype=np.uint8)).save(folder / f"IMG {index}.png")
    for index in range(2):
        (folder / f"broken{index}.jpg").write_bytes(b"no image")
    return folder


@pytest.fixture(scope="module")
def run(photos, tmp_path_factory) -> Path:
    run = tmp_path_factory.mktemp("runs") / "not" / "there" / "yet"
    assert echoless.pretrain(photos, out=run, max_bad_fraction=0.2, **SMALL)
    return run


@pytest.fixture
def labels(tmp_path) -> Path:
    file = tmp_path / "labels.csv"
    rows = [f"IMG {index}.png,{'cat' if index % 2 else 'dog'}" for index in range(6)]
    file.write_text("\n".join(["path,label", *rows]))
    return file


def test_a_refused_start_leaves_nothing_not_even_the_parents_and_names_its_option(photos, tmp_path):
    with pytest.raises(DataError, match=r"2 of 12 images cannot be used.*--max-bad-fraction 0\.17 leaves them out"):
        echoless.pretrain(photos, out=tmp_path / "a" / "b" / "run", **SMALL)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "a").mkdir()
    with pytest.raises(DataError):
        echoless.pretrain(photos, out=tmp_path / "a" / "run", **SMALL)
    assert [path.name for path in tmp_path.iterdir()] == ["a"], "what was there before stays"


def test_a_disk_without_room_for_the_checkpoints_is_refused_before_the_first_step(photos, tmp_path, monkeypatch):
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda place: usage(10**6, 10**6 - 1000, 1000))
    with pytest.raises(RunError, match="MB for its checkpoints, but 0 MB are free"):
        echoless.pretrain(photos, out=tmp_path / "run", max_bad_fraction=0.2, cache="off", **SMALL)
    assert not (tmp_path / "run").exists()


def test_few_labels_of_many_images_are_measured_and_said(run, photos, labels, capsys):
    """The unreadable images are listed and left out, though nobody asked for it: nothing is trained here."""
    metrics = echoless.evaluate(run, labels=labels, metrics=("knn",), baselines=False)
    said = capsys.readouterr()
    assert [metric.n for metric in metrics] == [6] and metrics[0].protocol["train_n"] == 6
    assert "--train: 4 images have no label and are left out: measuring on the 6 that have one" in said.out
    assert "unreadable image, left out: broken0.jpg" in said.err
    assert "labels: 2 classes from labels.csv, on 6 of 10 images (cat, dog)" in said.err
    assert "folds: class 'cat' has 3 images for 3 folds, which may leave too few to learn from: accuracies" in said.out
    echoless.evaluate(run, labels=labels, train=photos, test=photos, test_labels=labels, metrics=("knn",))
    assert "folds:" not in capsys.readouterr().out, "a test set needs none"


def halves(labels: Path) -> list[Path]:
    """Two files: the labels of the first four images, and those of the last two."""
    header, *rows = labels.read_text().splitlines()
    files = [labels.with_name("train.csv"), labels.with_name("test.csv")]
    for file, part in zip(files, (rows[:4], rows[4:])):
        file.write_text("\n".join([header, *part]))
    return files


def test_one_folder_with_two_lists_of_labels_is_two_sets(run, photos, labels, capsys):
    """All images were taken for training images, and an honest test was called none."""
    train, test = halves(labels)
    how = {"train": photos, "test": photos, "labels": train, "metrics": ("knn",), "baselines": False}
    (honest,) = echoless.evaluate(run, test_labels=test, **how)
    assert honest.n == 2 and honest.protocol["train_n"] == 4 and "overlap" not in honest.protocol
    said = capsys.readouterr()
    assert "in --train too" not in said.out
    assert said.err.count("broken0.jpg") == 1, "the files of one folder are listed once"
    (inflated,) = echoless.evaluate(run, test_labels=labels, **how)
    assert inflated.protocol["overlap"] == 4
    assert "4 of 6 images of --test are in --train too" in capsys.readouterr().out


def test_ranks_of_the_labelled_images_are_not_those_of_all(run, photos, labels):
    """They had one protocol, so that the second number replaced the first."""
    some = echoless.evaluate(run, train=photos, labels=labels, metrics=("knn", "rank"), baselines=False)
    every = echoless.evaluate(run, train=photos, metrics=("rank",), baselines=False)
    (one,), (other,) = ([m for m in found if m.metric == "rankme"] for found in (some, every))
    assert (one.n, other.n) == (6, 10) and one.protocol["train_set"] != other.protocol["train_set"]
    kept = [record["n"] for record in json.loads((run / "results.json").read_text()) if record["metric"] == "rankme"]
    assert set(kept) == {6, 10}
    ranked = str(runs("best", (run,), metric="rankme"))
    assert "n 6" in ranked and "n 10" in ranked and "train_set" not in ranked, "by what people know"


def test_the_labels_file_of_a_number_is_named_and_another_name_of_it_is_no_other_measurement(run, photos, labels):
    """All that was said of it was "a labels file" and a hash."""
    how = {"train": photos, "metrics": ("knn",), "baselines": False}
    (first,) = echoless.evaluate(run, labels=labels, **how)
    (again,) = echoless.evaluate(run, labels=labels.rename(labels.with_name("few.csv")), **how)
    assert (first.protocol["label_file"], again.protocol["label_file"]) == ("labels.csv", "few.csv")
    kept = [record["protocol"] for record in json.loads((run / "results.json").read_text())]
    same = [each.get("label_file") for each in kept if each.get("label_set") == first.protocol["label_set"]]
    assert same == ["few.csv"], "the newest name"
    assert "few.csv (" in str(runs("results", (run,)))
    assert "labels few.csv" in str(runs("best", (run,), metric="knn"))


def test_few_labels_are_enough_to_finetune(run, photos, labels, tmp_path, capsys):
    train, test = halves(labels)
    how = {"train": photos, "test": photos, "test_labels": test, "max_steps": 1, "batch_size": 4, "workers": 0}
    metric = echoless.finetune(run, labels=train, out=tmp_path / "tuned", **how)
    said = capsys.readouterr().err
    assert metric.n == 2 and metric.protocol["train_n"] == 4 and "overlap" not in metric.protocol
    assert "--train: 6 images have no label and are left out: training on the 4 that have one" in said
    assert said.count("labels: 2 classes") == 1 and said.count("labels of --test: 2 classes") == 1, "each set once"
    with pytest.raises(DataError, match=r"--train has no labels; give .* or --labels FILE\.csv"):
        echoless.finetune(run, out=tmp_path / "refused", **how)


def test_the_number_of_a_finetuning_fits_a_terminal(run, photos, labels, tmp_path, capsys):
    train, test = halves(labels)
    sets = f"--train {photos} --labels {train} --test {photos} --test-labels {test}"
    length = "--max-steps 1 --batch-size 4 --workers 0"
    assert main(["finetune", str(run), *sets.split(), "--out", str(tmp_path / "tuned"), *length.split()]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert max(map(len, printed)) <= 100 and any("chance" in line for line in printed)
    assert any(line.startswith("finetune ") and line.endswith("n=2") for line in printed)
    assert printed[-1] == "Next: Label more test images."


def test_vectors_are_written_for_other_tools_and_say_what_they_are(run, photos, labels, tmp_path, capsys):
    out = tmp_path / "deep" / "features.parquet"
    assert echoless.embed(run, photos, out=out, labels=labels) == 10
    assert "unreadable image, left out: broken1.jpg" in capsys.readouterr().err
    about = {key.decode(): value.decode() for key, value in pq.read_schema(out).metadata.items()}
    assert about["echoless.layer"] == "block05/+mlp" and about["echoless.pooling"] == "mean"
    assert about["echoless.run"] == str(run) and about["echoless.root"] == str(photos)
    table = pq.read_table(out)
    assert table["path"].to_pylist()[0] == "IMG 0.png" and table["label"].to_pylist()[6:] == [None] * 4
    echoless.embed(run, photos, out=tmp_path / "f.csv", labels=labels, paths="absolute")
    rows = list(csv.reader((tmp_path / "f.csv").read_text().splitlines()))
    assert rows[0][:3] == ["path", "label", "f0"] and rows[1][0] == str(photos / "IMG 0.png")
    vectors = np.array([row[2:] for row in rows[1:]], dtype=np.float32)
    assert np.array_equal(vectors, np.stack(table["feature"].to_pylist()).astype(np.float32)), "nine digits are enough"


def test_vectors_that_can_be_searched_name_the_next_command(run, photos, tmp_path, capsys):
    """Of the tables that `search` takes, one vector per image, as parquet; of others, what it needs."""
    for name, options, next_command in (
        ("my features.parquet", [], f"next: echoless search '{tmp_path}/my features.parquet' --query IMAGE"),
        ("f.csv", [], f"search needs parquet: --out {tmp_path}/f.parquet"),
        ("f.npy", [], f"search needs parquet: --out {tmp_path}/f.parquet"),
        ("tokens.parquet", ["--tokens"], ""),
    ):
        assert main(["embed", str(run), str(photos), "--out", str(tmp_path / name), *options]) == 0
        printed = capsys.readouterr().out
        assert next_command in printed and ("search" in printed) == bool(next_command)


def test_baselines_that_the_run_holds_are_compared_with_where_they_are_not_measured_again(run, tmp_path, capsys):
    """`--no-baselines` said that none was measured, beside those of the same images and labels."""
    mine = tmp_path / "run"
    shutil.copytree(run, mine)
    (mine / "results.json").unlink(missing_ok=True)
    words = ["evaluate", str(mine), "--train", "shapes:40", "--metrics", "knn"]

    def said(*more: str) -> str:
        assert main([*words, *more]) == 0
        return " ".join(capsys.readouterr().out.split()).partition("accuracy of the trained")[2]

    assert "raw pixels" not in said("--no-baselines")
    with_baselines = said()
    assert "raw pixels (" in with_baselines and said("--no-baselines") == with_baselines


def test_arrays_of_others_are_read_by_their_names_and_as_floats(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    np.savez(tmp_path / "a.npz", x=(pixels / 255).astype(np.float32), y=np.array([1, 0, 1, 0]))
    images = open_images(tmp_path / "a.npz")
    levels = pixels.transpose(0, 3, 1, 2).astype(np.uint16) * 257
    assert np.array_equal(images.get([0, 1, 2, 3]).pixels, levels) and images.bits == 16
    assert images.labels.tolist() == [1, 0, 1, 0]
    np.savez(tmp_path / "b.npz", x=pixels.astype(np.float32))
    with pytest.raises(DataError, match=r"image number 0 has the value 2\d\d; allowed: floats from 0 to 1"):
        open_images(tmp_path / "b.npz")


def test_a_killed_run_says_so_and_a_running_one_does_not(run, tmp_path):
    """Killed: a session began, none ended, and nobody holds the folder."""
    killed = Path(shutil.copytree(run, tmp_path / "killed", ignore=shutil.ignore_patterns("step-*")))
    lines = (killed / "metrics.jsonl").read_text().splitlines(keepends=True)
    (killed / "metrics.jsonl").write_text(lines[0])
    about = json.loads((killed / "about.json").read_text())
    cut = [about["history"][0] | {"seconds": None}]
    (killed / "about.json").write_text(json.dumps(about | {"ended": about["sessions"] - 1, "history": cut}))
    assert status(collect(killed)).startswith("killed: step 1 of 2")
    assert "Training was killed after 1 of 2 steps." in render([collect(killed)])
    assert "from the start, because it had saved no checkpoint yet" in render([collect(killed)])
    with open_run(killed, resume=True):
        assert status(collect(killed)).startswith("step 1 of 2")
    resumed = about | {"sessions": 2, "ended": 1, "history": [*cut, about["history"][0]]}
    (killed / "about.json").write_text(json.dumps(resumed))
    assert status(collect(killed)).startswith("stopped: step 1 of 2"), "killed once, then continued and stopped"
    (killed / "about.json").write_text(json.dumps(about))
    assert status(collect(killed)).startswith("stopped: step 1 of 2")


def test_a_stopped_run_has_as_many_steps_as_it_saved(run, tmp_path):
    """Not every step has a line in metrics.jsonl: the list said less than the message of Ctrl-C."""
    stopped = Path(shutil.copytree(run, tmp_path / "stopped"))
    config = json.loads((stopped / "config.json").read_text())
    (stopped / "config.json").write_text(json.dumps(config | {"steps": 9}))
    lines = (stopped / "metrics.jsonl").read_text().splitlines(keepends=True)
    (stopped / "metrics.jsonl").write_text(lines[0])
    assert status(collect(stopped)).startswith("stopped: step 2 of 9")
    about = json.loads((stopped / "about.json").read_text())
    cut = [about["history"][0] | {"seconds": None}]
    (stopped / "about.json").write_text(json.dumps(about | {"ended": 0, "history": cut}))
    assert "continues it, from the last checkpoint." in render([collect(stopped)])


def test_the_first_card_is_a_verdict_in_words_with_the_next_step(run):
    page = render([collect(run)])
    card = page[page.index('id="glance"') : page.index('id="what"')]
    assert "Next: " in card and ("Training is complete" in card or "accuracy of the trained features" in card)


def test_a_comparison_tells_images_apart_by_a_letter_and_hides_what_was_measured(run, tmp_path):
    other = Path(shutil.copytree(run, tmp_path / "other"))
    config = json.loads((other / "config.json").read_text())
    config["data"] |= {"fingerprint": "f" * 64, "mean": [0.1234567890123456] * 3}
    config |= {"batch_size": 8, "budget": {"seconds": 60.0, "images_per_second": 12.3456789}}
    (other / "config.json").write_text(json.dumps(config))
    shown = readable_settings([collect(run), collect(other)])
    assert shown == [("images", ["set A", "set B"]), ("batch_size", [4, 8])]


def test_the_card_of_an_export_names_the_layer():
    record = {"metric": "knn", "value": 0.5, "n": 9, "protocol": {"layer": "block05/+mlp", "train": "/home/me/x"}}
    assert "layer block05/+mlp" in _results([record]) and "/home" not in _results([record])


def test_the_card_of_an_export_is_written_in_sentences(run, tmp_path):
    echoless.export(run, to="onnx", out=tmp_path / "export")
    assert "It was pretrained with faded shortcuts (alpha from 1 to " in (tmp_path / "export" / "README.md").read_text()


def test_the_card_of_an_export_has_one_number_of_each_kind_and_no_inflated_one():
    """It listed everything that was ever measured: seventy rows after an hour."""

    def record(value: float, **protocol: object) -> dict:
        return {"metric": "knn", "value": value, "n": 9, "interval": [value, value], "protocol": protocol}

    old, new, of_pixels = record(0.5, label_set="x"), record(0.25, label_set="y"), record(0.1, features="raw pixels")
    text = _results([old, new, of_pixels, record(0.9, overlap=3), record(0.7, scan="layers")])
    assert [line.split(" | ")[1] for line in text.splitlines()[2:4]] == [
        "25.00 % [25.00, 25.00]",
        "10.00 % [10.00, 10.00]",
    ]
    assert text.endswith(
        "Of each kind of number, one evaluation is shown, with its baselines: a test set before cross-validation, then "
        "the most images, then the newest. The run has 3 more numbers: of other evaluations, layers or snapshots."
    )


def test_the_card_of_a_run_without_a_test_says_why_it_shows_no_number():
    """It said that one evaluation is shown, below an empty heading, and that the run has "1 more numbers"."""

    def record(value: float, **protocol: object) -> dict:
        return {"metric": "knn", "value": value, "n": 160, "protocol": {"train_set": "a"} | protocol}

    counted = {"test": "val", "test_set": "b", "overlap": 10}
    seen, scan = record(0.9, **counted, overlap_by_label=0), record(0.3, scan="layers")
    because = "10 of 160 images are in the training set too"
    only = f"No number is shown: the only evaluation has images of --train in --test ({because})."
    assert _results([seen]) == only and _results([seen, scan]) == only
    taught = "images whose labels trained the encoder"
    for known, what in (
        (
            {},
            f"images of --train in --test, or {taught} (10 of 160 images trained the probe or, by label, the encoder)",
        ),
        ({"overlap_by_label": 10}, f"{taught} (10 of 160 images trained the encoder by their labels)"),
    ):
        assert _results([record(0.9, **counted, **known)]).endswith(f": the only evaluation has {what}.")
    assert "every evaluation has images of --train in --test" in _results(
        [seen, record(1, **counted | {"test_set": "c"}, overlap_by_label=0)]
    )
    assert "the only evaluation has images whose labels trained the encoder" in _results([record(0.9, overlap=160)])
    assert _results([scan]).startswith("No number is shown: the run has none of its last layer")
    assert _results([seen, record(0.2)]).endswith("has 1 more number: of other evaluations, layers or snapshots.")


def test_the_card_of_an_export_never_puts_baselines_of_one_evaluation_beside_the_features_of_another():
    """Raw pixels of 600 images stood beside the trained features of 80, and those of the 600 were missing."""

    def record(value: float, features: str, sets: dict[str, str], metric: str = "knn") -> dict:
        return {"metric": metric, "value": value, "n": 9, "interval": None, "protocol": {"features": features} | sets}

    many = {"train": "many", "train_set": "aa", "labels": "sub-folders", "label_set": "x"}
    few = {"train": "few", "train_set": "bb", "labels": "a labels file", "label_file": "few.csv", "label_set": "y"}
    old = [record(0.5, "trained", many), record(0.1, "raw pixels", many), record(0.2, "untrained", many)]
    rank = [record(9.0, "trained", {"train": "many", "train_set": "aa"}, "rankme")]
    text = _results([*old, *rank, record(0.3, "trained", few)])
    ranked, newest = text.split("Measured with ")[1:]
    assert ranked.startswith("train many:") and "rankme" in ranked and "knn" not in ranked
    assert newest.startswith("train few, labels few.csv:") and newest.count("| knn |") == 1 and "30.00 %" in newest
    assert "The run has 3 more" in newest
    whole = _results([record(0.3, "trained", few), *old])
    assert whole.count("Measured with ") == 1 and whole.count("| knn |") == 3 and "30.00 %" not in whole


def test_two_sets_are_told_apart_where_their_labels_are_named(run, photos, labels, capsys):
    """Two lines began with "labels:"."""
    train, test = halves(labels)
    echoless.evaluate(run, train=photos, test=photos, labels=train, test_labels=test, metrics=("knn",), baselines=False)
    said = capsys.readouterr().err
    assert "labels of --train: 2 classes" in said and "labels of --test: 2 classes" in said


def test_classes_that_two_sets_share_are_listed_once(run, tmp_path, capsys):
    """Of the same ten classes, two or three equal lines began an evaluation, a fine-tuning, a probe and a sweep."""
    data, few = "shapes:40", {"max_steps": 1, "batch_size": 4, "workers": 0}
    echoless.evaluate(run, train=data, test="shapes:20@test", metrics=("knn",), baselines=False)
    assert capsys.readouterr().err.count("10 classes from") == 1
    echoless.finetune(run, train=data, test="shapes:20@test", out=tmp_path / "tuned", **few)
    assert capsys.readouterr().err.count("10 classes from") == 1
    probed = SMALL | {"probe_every": 1, "probe_data": "shapes:80@test"}
    echoless.pretrain(data, out=tmp_path / "probed", **probed)
    assert capsys.readouterr().err.count("10 classes from") == 1


def test_what_is_odd_about_one_folder_given_twice_is_said_once(run, photos, labels, tmp_path, capsys):
    """Files that are no images, and images that are smaller than a tile; of another folder they are said, too."""
    for name in ("one", "other"):
        shutil.copytree(photos, tmp_path / name)
        (tmp_path / name / "notes.txt").write_text("no image")
    one, other, passed = tmp_path / "one", tmp_path / "other", "1 other file in"
    how = {"labels": labels, "test_labels": labels, "metrics": ("knn",), "baselines": False, "tiles": 64}
    echoless.evaluate(run, train=one, test=one, **how)
    said = capsys.readouterr().err
    assert said.count(passed) == said.count("tiles: no image is larger") == said.count("broken0.jpg") == 1
    echoless.evaluate(run, train=one, test=other, **how)
    assert capsys.readouterr().err.count(passed) == 2
    few = {"labels": labels, "test_labels": labels, "max_steps": 1, "batch_size": 4, "workers": 0}
    echoless.finetune(run, train=one, test=one, out=tmp_path / "tuned", **few)
    assert capsys.readouterr().err.count(passed) == 1


def test_ignoring_labels_is_advice_only_where_something_is_left_without_them(run, photos, tmp_path, capsys):
    """It would be refused by a fine-tuning, a supervised run, a probe, or an evaluation of accuracies alone."""
    for index, file in enumerate(sorted(photos.glob("*.png"))):
        (tmp_path / "photos" / f"class{index % 2}").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, tmp_path / "photos" / f"class{index % 2}" / file.name)
    data, few = tmp_path / "photos", {"max_steps": 1, "batch_size": 4, "workers": 0}
    some = tmp_path / "some"
    shutil.copytree(data, some)
    (some / "class2").mkdir()
    for index in range(2):
        shutil.copyfile(photos / f"IMG {index}.png", some / "class2" / f"{index}.png")

    def advised(verb, *given, **options) -> list[str]:
        capsys.readouterr()
        verb(*given, **options)
        lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("labels")]
        assert lines, "the classes are said in any case"
        return [line.rpartition("; ")[2] for line in lines if "ignores" in line]

    assert advised(echoless.pretrain, data, out=tmp_path / "a", **SMALL) == ["--labels none ignores them"]
    assert advised(echoless.embed, run, data, out=tmp_path / "f.npy") == ["--labels none ignores them"]
    measured = {"train": data, "baselines": False}
    assert advised(echoless.evaluate, run, metrics=("rank", "knn"), **measured) == ["--labels none ignores them"]
    assert advised(echoless.evaluate, run, metrics=("knn",), **measured) == []
    assert advised(echoless.finetune, run, train=data, test=data, out=tmp_path / "tuned", **few) == []
    supervised = {"recipe": "vit-tiny-supervised", "patch_size": 16, "depth": 1, **few}
    assert advised(echoless.pretrain, data, out=tmp_path / "sup", test=data, **supervised) == []
    probed = {"probe_every": 1, "probe_data": some}
    assert advised(echoless.pretrain, data, out=tmp_path / "b", **SMALL, **probed) == ["--labels none ignores them"]


def test_a_run_whose_images_are_not_found_from_here_asks_for_them(tmp_path, monkeypatch):
    """A run records the path that was typed, which may be relative; nobody typed it now."""
    (tmp_path / "here" / "photos").mkdir(parents=True)
    (tmp_path / "there").mkdir()
    for index in range(8):
        Image.new("RGB", (32, 32), (index * 30, 0, 0)).save(tmp_path / "here" / "photos" / f"{index}.png")
    monkeypatch.chdir(tmp_path / "here")
    for data, out in (("photos", "../folder"), ("photos/*.png", "../pattern")):
        assert echoless.pretrain(data, out=out, **SMALL)
        assert echoless.evaluate(out, metrics=("rank",))[0].protocol["train"] == data
    monkeypatch.chdir(tmp_path / "there")
    for data, out in (("photos", "../folder"), ("photos/*.png", "../pattern")):
        with pytest.raises(
            RunError, match=r"was trained on '.*', which is not found from this folder; give --train"
        ) as no:
            echoless.evaluate(out, metrics=("rank",))
        assert repr(data) in str(no.value)


def test_one_step_is_one_step(run, tmp_path):
    one = Path(shutil.copytree(run, tmp_path / "one", ignore=shutil.ignore_patterns("step-*")))
    config = json.loads((one / "config.json").read_text())
    (one / "config.json").write_text(json.dumps(config | {"steps": 1}))
    (one / "metrics.jsonl").write_text((one / "metrics.jsonl").read_text().splitlines(keepends=True)[0])
    assert status(collect(one)) == "complete: 1 step"


def test_a_bar_that_had_nothing_to_do_leaves_no_trace():
    """On a terminal: what was read from the cache at once has no empty bar."""

    class Terminal(list):
        encoding = "utf-8"

        def write(self, text):
            self.append(text)

        def flush(self):
            pass

        def isatty(self):
            return True

    terminal = Terminal()
    with Progress("reading", 1, "images", stream=terminal):
        pass
    assert "reading" not in "".join(terminal)


def test_pages_never_mix_numbers_of_two_sets_and_name_images_without_hashes(run, tmp_path):
    """Measured on labelled photographs, then on others: the gallery took the newest of each number."""
    runs = []
    for name, value in (("one", 0.5), ("two", 0.6)):
        copy = Path(shutil.copytree(run, tmp_path / name))
        records = [
            _record("knn", value, "aa" * 6, "photos"),
            _record("rankme", 30.0, "aa" * 6, "photos"),
            _record("rankme", 4.0, "bb" * 6, "others"),
            _record("knn", 0.9, "bb" * 6, "others", features="raw pixels"),
        ]
        (copy / "results.json").write_text(json.dumps(records))
        config = json.loads((copy / "config.json").read_text())
        config["optim"]["base_lr"] = value
        (copy / "config.json").write_text(json.dumps(config))
        runs.append(collect(copy))
    shown = card("one", runs[0])
    assert [value for _, value in shown["numbers"]] == ["50.00 %", "30"]
    assert shown["measured"] == "measured on 100 images of photos"
    page = render(runs)
    compared = page[page.index('id="compared"') : page.index('id="what"')]
    assert "train photos" in compared and "aa" * 6 not in compared
    measured = page[page.index("Measured on frozen features") : page.index("All numbers", page.index('id="learned"'))]
    assert "raw pixels" not in measured, "a baseline on other images"


def _record(metric: str, value: float, fingerprint: str, name: str, features: str = "trained") -> dict:
    protocol = {"features": features, "train": name, "train_set": fingerprint}
    return {"metric": metric, "value": value, "n": 100, "interval": None, "protocol": protocol}


@pytest.mark.parametrize("beside", [0, 1])
def test_one_image_is_refused_unless_it_is_cut_into_tiles(tmp_path, beside):
    """It trained on "1 images", of which every batch was a repetition."""
    folder = tmp_path / "one"
    folder.mkdir()
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (96, 96, 3), dtype=np.uint8)).save(folder / "ONE.JPG")
    for _ in range(beside):
        (folder / "broken.jpg").write_bytes(b"no image")
    data = folder if beside else folder / "ONE.JPG"
    options = SMALL | {"max_bad_fraction": 0.5}
    refused = (
        f"^{data} has one image that can be used, from which no encoder learns; give a folder of images, or --tiles"
    )
    with pytest.raises(DataError, match=refused):
        echoless.pretrain(data, out=tmp_path / "run", **options)
    assert not (tmp_path / "run" / "config.json").exists()
    assert echoless.pretrain(data, out=tmp_path / "run", tiles=48, **options)
    assert "data: 4 tiles of 48 x 48 from " in (tmp_path / "run" / "log.txt").read_text()
