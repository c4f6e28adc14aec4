"""`finetune` starts from the encoder, trains it with layer-wise rates, resumes bitwise, and reports its accuracy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run

from echoless.cli.main import main
from echoless.config import OptimConfig, from_dict
from echoless.config.training import RunConfig
from echoless.errors import DataError
from echoless.training.optim import layer_groups, set_learning_rate
from echoless.verbs.finetune import finetune


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    images = tiny_images()
    out = tmp_path_factory.mktemp("finetune") / "run"
    tiny_run(out, images, tiny_config(images, steps=4))
    return out


def test_it_ends_in_an_accuracy_with_its_interval_and_one_per_epoch(run, tmp_path):
    metric = finetune(run, train="shapes:64", test="shapes:40@test", out=tmp_path / "ft", epochs=2, batch_size=16)
    assert metric.n == 40 and metric.interval[0] <= metric.value <= metric.interval[1]
    recorded = json.loads((tmp_path / "ft" / "results.json").read_text())
    assert recorded[0]["metric"] == "finetune" and recorded[0]["value"] == metric.value
    lines = [json.loads(line) for line in (tmp_path / "ft" / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "test_accuracy" in line] == [4, 8]


def test_a_resumed_run_is_the_unbroken_one(run, tmp_path):
    from tiny import fingerprint

    for name, legs in (("whole", (6,)), ("parts", (3, 6))):
        for leg in legs:
            # The schedule's length is part of the run, so stop the first leg with the same length.
            finetune(
                run,
                train="shapes:64",
                test="shapes:20@test",
                out=tmp_path / name,
                max_steps=leg if leg == 6 else 6,
                batch_size=16,
                checkpoint_every=3,
                resume=(tmp_path / name).exists(),
            )
            if leg == 3:  # as if it had been killed after step 3
                from shutil import rmtree

                rmtree(tmp_path / name / "checkpoints" / "step-00000006")
    whole, parts = (fingerprint(tmp_path / name, 6) for name in ("whole", "parts"))
    assert whole == parts


def test_a_resume_takes_what_is_not_given_from_the_run(run, tmp_path):
    """Cut after its second step and resumed with no setting repeated, it ends with the bits of the unbroken run."""
    from shutil import copytree, rmtree

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    settings = {"max_steps": 3, "batch_size": 8, "base_lr": 2e-3, "layer_decay": 0.8, "mixup": 0.0, "erase": 0.5}
    settings |= {"pooling": "cls", "seed": 5, "accumulate": 2, "drop_path": 0.0, "warmup": 0.3}
    finetune(run, train="shapes:32", test="shapes:20@test", out=whole, checkpoint_every=2, **settings)
    copytree(whole, cut)
    rmtree(cut / "checkpoints" / "step-00000003")
    finetune(run, train="shapes:32", test="shapes:20@test", out=cut, resume=True)
    for name in ("config.json", "checkpoints/step-00000003/model.safetensors"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    assert finetune(run, train="shapes:32", test="shapes:20@test", out=cut, resume=True, max_steps=4) is not None
    assert json.loads((cut / "config.json").read_text())["steps"] == 4


def test_rates_fall_by_the_decay_from_layer_to_layer(run):
    from echoless.models.classifier import Classifier

    manifest = json.loads((run / "config.json").read_text())
    encoder = from_dict(RunConfig, manifest).model.encoder
    from echoless.config.supervised import ClassifierConfig

    model = Classifier(ClassifierConfig(encoder=encoder, classes=10))
    groups = layer_groups(model, OptimConfig(layer_decay=0.5))
    assert sum(len(group["params"]) for group in groups) == len(list(model.parameters()))
    assert sorted({group["lr_scale"] for group in groups}) == [0.5**i for i in range(7, -1, -1)]
    import torch

    optimizer = torch.optim.AdamW(groups, lr=1.0)
    set_learning_rate(optimizer, 2.0)
    assert {group["lr"] for group in optimizer.param_groups} == {2.0 * 0.5**i for i in range(8)}


def test_bad_input_is_refused_in_one_sentence(run, tmp_path, capsys):
    from PIL import Image

    (tmp_path / "flat").mkdir()
    for index in range(3):
        Image.new("RGB", (32, 32)).save(tmp_path / "flat" / f"{index}.png")
    with pytest.raises(DataError, match="--train has no labels"):
        finetune(run, train=tmp_path / "flat", test="shapes:20@test", out=tmp_path / "ft", max_steps=1)
    arguments = ["finetune", str(tmp_path), "--train", "shapes:20", "--test", "shapes:20", "--out", str(tmp_path / "x")]
    assert main(arguments) == 2
    assert "holds no trained model; allowed: a run" in capsys.readouterr().err


def test_grey_and_colour_sets_are_converted_to_what_the_encoder_takes(run, tmp_path):
    """A colour test set beside a grey training set ended in a traceback after the first epoch."""
    for name, shape in (("train", (32, 32)), ("test", (32, 32, 3))):
        for number in range(16):
            place = tmp_path / name / f"class{number % 2}" / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.random.default_rng(number).integers(0, 256, shape, dtype=np.uint8)).save(place)
    metric = finetune(
        run, train=tmp_path / "train", test=tmp_path / "test", out=tmp_path / "ft", epochs=1, batch_size=8
    )
    assert metric.n == 16
    np.savez(tmp_path / "grey.npz", images=np.zeros((4, 32, 32), np.uint8), labels=np.arange(4) % 2)
    with pytest.raises(DataError, match=r"--test has images of 1 channel\(s\); allowed: 3, as the model takes"):
        finetune(run, train=tmp_path / "train", test=tmp_path / "grey.npz", out=tmp_path / "no", epochs=1)
