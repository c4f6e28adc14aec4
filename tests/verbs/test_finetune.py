"""`finetune` starts from the encoder, trains it with layer-wise rates, resumes bitwise, and reports its accuracy."""

from __future__ import annotations

import json
import math
import shlex
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run

from echoless.cli.main import main
from echoless.config import OptimConfig, from_dict
from echoless.config.metrics import Metric
from echoless.config.options import FinetuneOptions
from echoless.config.training import RunConfig
from echoless.data import open_images
from echoless.errors import ConfigError, DataError
from echoless.models.classifier import Classifier
from echoless.recipes.finetuning import finetuning
from echoless.runs.open import load_body
from echoless.training.optim import layer_groups, set_rates
from echoless.training.warmstart import warm_start
from echoless.verbs.evaluate import evaluate
from echoless.verbs.finetune import finetune
from echoless.verbs.finetuning import configure, read_source
from echoless.verbs.pretrain import pretrain
from echoless.verbs.table import VERBS


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


QUICK = {"metrics": ("knn",), "baselines": False, "k": (3,)}


@pytest.fixture(scope="module")
def tuned(run, tmp_path_factory) -> Path:
    """Fine-tuned on 64 images, tested on 40 others."""
    out = tmp_path_factory.mktemp("tuned") / "tuned"
    finetune(run, train="shapes:64", test="shapes:40@test", out=out, epochs=1, batch_size=16)
    return out


@pytest.mark.parametrize(
    ("sets", "taught"),
    [
        ({}, 64),
        ({"train": "shapes:64"}, 64),
        ({"train": "shapes:50"}, 50),
        ({"train": "shapes:80"}, 64),
        ({"train": "shapes:40@test", "test": "shapes:64"}, 64),
        ({"train": "shapes:64", "test": "shapes:40@test"}, 0),
        ({"train": "shapes:40@test"}, 0),
        ({"train": "shapes:64", "test": "shapes:64"}, 64),
    ],
    ids=str,
)
@pytest.mark.parametrize("inside", [".", "encoder", "checkpoints/step-00000004"])
def test_images_whose_labels_trained_the_encoder_are_no_test_however_they_are_given(
    tuned, sets, taught, inside, capsys
):
    """What counts is which images are predicted: named or not, in part or among others, as folds or as --test."""
    (metric,) = evaluate(tuned / inside if sets else tuned, **sets, **QUICK)
    assert metric.protocol.get("overlap", 0) == taught
    said = capsys.readouterr().out
    of = " of --test" if "test" in sets else ""
    assert (f"the labels of {taught} of the {metric.n} images{of} trained this encoder" in said) == bool(taught)


def test_where_no_set_is_given_the_warning_names_the_test_set_of_the_run(tuned, capsys):
    evaluate(tuned, **QUICK)
    tested = f"echoless evaluate {tuned} --train shapes:64 --test shapes:40@test"
    assert f"; its test set is measured by: {tested}\n" in capsys.readouterr().out
    evaluate(tuned, train="shapes:64", **QUICK)
    assert "its test set" not in capsys.readouterr().out


def noise(folder: Path, numbers: range) -> Path:
    for number in numbers:
        place = folder / f"class{number % 2}" / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.random.default_rng(number).integers(0, 256, (64, 64, 3), dtype=np.uint8)).save(place)
    return folder


def test_renamed_files_and_their_tiles_are_still_those_whose_labels_trained_the_encoder(run, tmp_path):
    """Bytes count, not names or places, and all tiles of a file have its label."""
    train, test = noise(tmp_path / "train", range(24)), noise(tmp_path / "test", range(24, 32))
    finetune(run, train=train, test=test, out=tmp_path / "ft", max_steps=1)
    for number, file in enumerate(sorted(train.rglob("*.png"))):
        file.rename(file.with_name(f"renamed-{number}.png"))
    (whole,) = evaluate(tmp_path / "ft", train=test, test=train, **QUICK)
    (cut,) = evaluate(tmp_path / "ft", train=test, test=train, tiles=32, **QUICK)
    assert (whole.protocol["overlap"], cut.protocol["overlap"]) == (24, 96)


def test_an_encoder_that_starts_from_a_fine_tuned_one_knows_its_labels_too(tuned, tmp_path, capsys):
    """The labels of its own test images trained the weights that it started from."""
    metric = finetune(tuned, train="shapes:40@test", test="shapes:32", out=tmp_path / "again", max_steps=1)
    assert metric.protocol["overlap"] == 32
    assert "the labels of 32 of the 32 images of --test trained this encoder" in capsys.readouterr().err
    (metric,) = evaluate(tmp_path / "again", train="shapes:40@test", test="shapes:64", **QUICK)
    assert metric.protocol["overlap"] == 64


def test_of_a_run_without_the_record_the_whole_set_is_known_and_else_it_is_said(tuned, tmp_path, capsys):
    """As runs of earlier versions are, and an encoder that was copied out of its run."""
    from shutil import copytree

    old = copytree(tuned, tmp_path / "old")
    (old / "taught.bin").unlink()
    (metric,) = evaluate(old, train="shapes:64", **QUICK)
    assert metric.protocol["overlap"] == 64 and "the labels of 64 of the 64 images" in capsys.readouterr().out
    alone = copytree(tuned / "encoder", tmp_path / "alone")
    for source, train in ((old, "shapes:50"), (alone, "shapes:64")):
        (metric,) = evaluate(source, train=train, **QUICK)
        assert "overlap" not in metric.protocol
        assert "it is not recorded of which images" in capsys.readouterr().out


def test_it_ends_with_a_verdict_and_the_command_that_measures_the_frozen_features_alike(run, tmp_path, capsys):
    """Which, once given, is what the number is compared with."""
    from shlex import split

    words = ["finetune", str(run), "--train", "shapes:64", "--test", "shapes:60@test", "--epochs", "1"]
    assert main([*words, "--out", str(tmp_path / "one")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "Fine-tuned accuracy is" in said and "largest class of the test images (10.00 %)" in said
    command = said[said.index("echoless evaluate ") :]
    assert split(command) == ["echoless", "evaluate", str(run), *words[2:6]]
    assert main([*split(command)[1:], "--metrics", "linear", "--no-baselines"]) == 0
    assert main([*words, "--out", str(tmp_path / "two")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "linear probe accuracy of the frozen features" in said and "Measure the frozen" not in said


def test_a_resumed_run_ends_with_the_same_command_though_its_labels_were_not_given_again(run, tmp_path, capsys):
    """It was made of the typed options: the labels, which the record has, were missing."""
    sets = []
    for name, numbers in (("train", range(24)), ("test", range(24, 48))):
        files = sorted(noise(tmp_path / name, numbers).rglob("*.png"))
        rows = [
            f"{file.relative_to(tmp_path / name)},{'odd' if number % 2 else 'even'}"
            for number, file in enumerate(files)
        ]
        (tmp_path / f"{name}.csv").write_text("\n".join(["path,label", *rows, ""]))
        sets += [f"--{name}", str(tmp_path / name)]
    labels = ["--labels", str(tmp_path / "train.csv"), "--test-labels", str(tmp_path / "test.csv")]
    words = ["finetune", str(run), *sets, "--out", str(tmp_path / "ft")]
    said = []
    for more in ([*labels, "--max-steps", "1"], ["--resume"], ["--resume", "--max-steps", "2"]):
        assert main([*words, *more]) == 0
        out = capsys.readouterr().out
        said.append(shlex.split(out[out.index("echoless evaluate ") :])[1:])
    assert said[0] == said[1] == said[2] and set(labels) <= set(said[0])
    assert main([*said[0], "--metrics", "knn", "--no-baselines", "--k", "3"]) == 0


@pytest.mark.parametrize(
    ("done", "compared"), [((2,), None), ((4,), "50.00 %"), ((2, None), "50.00 %"), ((None, 2), "50.00 %")], ids=str
)
def test_the_number_of_an_earlier_checkpoint_is_not_that_of_the_weights_that_it_started_from(
    done, compared, run, tmp_path
):
    """A run was evaluated while it trained, and its later end was fine-tuned. The run has four steps."""
    from shutil import copytree

    source = copytree(run, tmp_path / "run")
    sets = {"train_set": "aa", "test_set": "bb"}
    frozen = [
        Metric(
            metric="linear",
            value=0.3 if step == 2 else 0.5,
            n=500,
            interval=(0.28, 0.52),
            protocol={"features": "trained", **sets, **({} if step is None else {"checkpoint": step})},
        )
        for step in done
    ]
    (source / "results.json").write_text(json.dumps([metric.to_json() for metric in frozen]))
    tuned = Metric(metric="finetune", value=0.9, n=500, interval=(0.88, 0.92), protocol=sets)
    options = FinetuneOptions(source, train="shapes:64", test="shapes:500@test", out=tmp_path / "ft")
    said = " ".join(VERBS["finetune"].show(options, tuned).split())
    if compared is None:
        assert "the frozen features were not measured on these images" in said
    else:
        assert f"it beats linear probe accuracy of the frozen features ({compared})" in said


@pytest.mark.parametrize("verb", ["finetune", "pretrain"])
def test_the_command_that_comes_next_measures_on_the_test_set(verb, run, tmp_path, capsys):
    """It was `evaluate TUNED`, which measures on the labels of training and answers that this is not a test."""
    how = {"test": "shapes:40@test", "out": tmp_path / "a run", "max_steps": 1, "batch_size": 16}
    if verb == "finetune":
        finetune(run, train="shapes:64", **how)
    else:
        pretrain("shapes:64", recipe="resnet-tiny-supervised", **how)
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("next: ")]
    words = shlex.split(said.removeprefix("next: "))
    assert words == [
        "echoless",
        "evaluate",
        str(tmp_path / "a run"),
        "--train",
        "shapes:64",
        "--test",
        "shapes:40@test",
    ]
    done = main([*words[1:], "--metrics", "knn", "--no-baselines"])
    assert done == 0 and "overlap" not in capsys.readouterr().out


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
    set_rates(optimizer, 2.0, 0.05)
    assert {group["lr"] for group in optimizer.param_groups} == {2.0 * 0.5**i for i in range(8)}


@pytest.mark.parametrize(
    ("depth", "epochs", "base_lr", "layer_decay", "drop_path"),
    [(12, 100, 5e-4, 0.65, 0.1), (24, 50, 1e-3, 0.75, 0.2), (32, 50, 1e-3, 0.75, 0.3)],
)
def test_the_settings_are_those_of_he_et_al_by_depth(depth, epochs, base_lr, layer_decay, drop_path):
    """Table 9 of arXiv:2111.06377 and the commands of its code, for ViT-B, L and H."""
    config = finetuning(depth, 1_281_167, rand_augment=True)
    optim, objective = config.optim, config.objective
    assert (optim.base_lr, optim.layer_decay, objective.drop_path) == (base_lr, layer_decay, drop_path)
    assert config.batch_size == 1024 and config.steps == math.ceil(epochs * 1_281_167 / 1024)
    assert optim.warmup * epochs == pytest.approx(5) and optim.min_lr == 1e-6 and optim.betas == (0.9, 0.999)
    assert (optim.weight_decay, optim.weight_decay_on, optim.clip) == (0.05, "matrices", None)
    assert (objective.mixup, objective.cutmix, objective.label_smoothing, objective.erase) == (0.8, 1.0, 0.1, 0.25)
    assert objective.rand_augment == 9.0 and config.model.pooling == "patch_mean"


@pytest.fixture(scope="module")
def normed(tmp_path_factory) -> Path:
    """A run of the plain autoencoder, whose encoder ends in a norm that training has moved."""
    images = tiny_images(8)
    config, out = tiny_config(images, steps=2), tmp_path_factory.mktemp("normed") / "run"
    encoder = replace(config.model.encoder, final_norm=True)
    tiny_run(out, images, replace(config, model=replace(config.model, decoder="plain", encoder=encoder)))
    return out


@torch.no_grad()
@pytest.mark.parametrize("pooling", ["patch_mean", "cls"])
def test_a_classifier_has_one_norm_and_a_class_token_keeps_the_pretrained_one(normed, pooling, tmp_path):
    """He et al. 2022: the mean of the patches has a new norm after it, a class token the one of pretraining."""
    options = FinetuneOptions(normed, train="shapes:16", test="shapes:16", out=tmp_path, pooling=pooling)
    config = configure(options, read_source(normed), open_images("shapes:16"), None)
    assert not config.model.encoder.final_norm
    model = Classifier(config.model)
    warm_start(model, normed)
    pretrained = load_body(normed).model
    moved = not pretrained.norm.weight.equal(torch.ones_like(pretrained.norm.weight))
    assert moved and model.norm.weight.equal(pretrained.norm.weight) == (pooling == "cls")
    batch = torch.rand(2, 3, *config.model.image_size, generator=torch.Generator().manual_seed(0))
    tokens = pretrained.features(batch)
    expected = tokens["norm"][:, 0] if pooling == "cls" else model.norm(tokens[tokens.last_block][:, 1:].mean(dim=1))
    torch.testing.assert_close(model(batch), model.head(expected))


def test_rand_augment_is_on_where_the_pixels_allow_it_and_refused_elsewhere(run, tmp_path):
    deep = {"images": np.zeros((16, 32, 32, 3), np.uint16), "labels": np.arange(16) % 2}
    np.savez(tmp_path / "deep.npz", **deep)
    for train, given, expected in (("shapes:16", None, 9.0), ("shapes:16", 0.0, None), ("shapes:16", 4.0, 4.0)):
        options = FinetuneOptions(run, train=train, test=train, out=tmp_path, rand_augment=given)
        assert configure(options, read_source(run), open_images(train), None).objective.rand_augment == expected
    images = open_images(tmp_path / "deep.npz")
    options = FinetuneOptions(run, train="deep", test="deep", out=tmp_path)
    assert configure(options, read_source(run), images, None).objective.rand_augment is None
    with pytest.raises(ConfigError, match=r"rand_augment is 9.0; allowed: 0 \(off\) with 16-bit images"):
        configure(replace(options, rand_augment=9.0), read_source(run), images, None)


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
