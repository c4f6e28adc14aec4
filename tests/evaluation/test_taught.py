"""Images whose labels trained the encoder are overlap, in every form in which they can be given to `evaluate`.

Fine-tuned runs: tests/verbs/test_finetune.py. Run alone: pytest tests/evaluation/test_taught.py
"""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import echoless
from echoless.config.words import in_words
from echoless.runs.taught import TAUGHT, add_taught, read_taught

QUICK = {"metrics": ("linear",), "baselines": False}


@pytest.fixture(scope="module")
def phone(tmp_path_factory) -> Path:
    """One folder of 80 photographs with two files of labels: L for the first 40, T for the others."""
    root = tmp_path_factory.mktemp("phone")
    (root / "phone").mkdir()
    for number in range(80):
        pixels = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(root / "phone" / f"{number:02d}.png")
    for name, numbers in (("L", range(40)), ("T", range(40, 80))):
        (root / f"{name}.csv").write_text("path,label\n" + "".join(f"{n:02d}.png,{'ab'[n % 2]}\n" for n in numbers))
    return root


@pytest.fixture(scope="module", params=["pretrain", "finetune"])
def supervised(request, phone) -> Path:
    """Trained with the labels of the first 40: by supervised training on renamed copies of them, or by fine-tuning."""
    out, how = phone / f"run by {request.param}", {"max_steps": 1, "batch_size": 8}
    if request.param == "pretrain":
        for number in range(40):
            copy = phone / "first" / "ab"[number % 2] / f"copy of {number}.png"
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(phone / "phone" / f"{number:02d}.png", copy)
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
    assert ("is not a test: 40 of 40 images trained the probe or, by label," in in_words([metric]).verdict) == bool(
        taught
    )


def test_a_run_that_no_labels_trained_records_nothing(phone, tmp_path):
    echoless.pretrain(phone / "phone", out=tmp_path / "run", recipe="demo", max_steps=1, batch_size=8)
    assert not (tmp_path / "run" / TAUGHT).exists() and read_taught(tmp_path / "run") is None


def test_hashes_are_added_and_a_damaged_file_is_not_believed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    one, two = frozenset({b"a" * 16}), frozenset({b"b" * 16, b"a" * 16})
    add_taught(tmp_path, one)
    add_taught(tmp_path, two)
    assert (
        read_taught(tmp_path) == read_taught(tmp_path / "encoder") == read_taught(tmp_path / "snapshots/x") == one | two
    )
    (tmp_path / TAUGHT).write_bytes((tmp_path / TAUGHT).read_bytes()[:-1] + b"?")
    assert read_taught(tmp_path) is None
