"""None means not given: every setting that is given to --resume is honoured or refused by name, also where it equals
the default, and every setting that is not given is what the run was started with.

    pytest tests/verbs/test_resume_settings.py
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
import torch

from echoless.config import RunConfig, ViTConfig, to_dict
from echoless.config.options import FinetuneOptions, PretrainOptions, SampleOptions
from echoless.config.options.fields import is_required
from echoless.config.options.remembered import Remembered
from echoless.data import open_images
from echoless.errors import ConfigError, DataError, RunError
from echoless.runtime import Team
from echoless.verbs import configuring, finetuning
from echoless.verbs.pretrain import _with_recorded_data, pretrain
from echoless.verbs.record import Record, read_record, require_same_start, require_verb, with_remembered

TEAM = Team(0, 1, torch.device("cpu"))
# How a command is started; never recorded, so a given value has nothing to compete with.
OF_THE_MOMENT = {"out", "device", "resume", "new_data", "overwrite", "strict", "requeue", "wait", "config"}
REMEMBERED = {field.name for field in fields(Remembered)}

# Field -> (recipe, value at the start, value given to --resume, where the config has it).
SETTINGS = {
    "recipe": ("shapes", "shapes", "auto", "recipe"),
    "epochs": ("shapes", 50.0, 24.0, "steps"),
    "max_steps": ("shapes", 7, 1000, "steps"),
    "batch_size": ("shapes", 4, 128, "batch_size"),
    "accumulate": ("shapes", 2, 1, "accumulate"),
    "image_size": ("shapes", (64, 64), (32, 32), "model.encoder.image_size"),
    "patch_size": ("shapes", 8, 4, "model.encoder.patch_size"),
    "channels": ("shapes", 3, 1, "data.channels"),
    "labels": ("shapes", "a.csv", "b.csv", "data.labels"),
    "classes": ("shapes", "a.txt", "b.txt", "data.classes"),
    "alpha_min": ("shapes", 0.7, 0.6, "model.encoder.shortcuts.alpha_min"),
    "variant": ("shapes", "scale_both", "faded", "model.encoder.shortcuts.variant"),
    "schedule": ("shapes", "cosine", "linear", "model.encoder.shortcuts.schedule"),
    "per": ("shapes", "block", "sublayer", "model.encoder.shortcuts.per"),
    "fade": ("shapes", "mlp", "both", "model.encoder.shortcuts.fade"),
    "fade_in": ("shapes", 0.5, 0.3, "fade_in"),
    "depth": ("shapes", 2, 12, "model.encoder.depth"),
    "width": ("shapes", 32, 96, "model.encoder.width"),
    "zero_init": ("shapes", False, True, "model.encoder.zero_init"),
    "decoder": ("shapes", "plain", "long_skips", "model.decoder"),
    "decoder_depth": ("shapes", 1, 4, "model.decoder_depth"),
    "taps": ("shapes", "authors", "spread", "model.taps"),
    "mask_ratio": ("shapes", 0.5, 0.75, "objective.mask_ratio"),
    "normalize_pixels": ("shapes", False, True, "objective.normalize_pixels"),
    "conditional": ("sit-tiny", False, True, "model.classes"),
    "label_dropout": ("sit-tiny", 0.5, 0.1, "objective.label_dropout"),
    "long_skips": ("sit-tiny", False, True, "model.long_skips"),
    "init_scheme": ("vit-tiny-supervised", "skipless", "default", "model.encoder.init_scheme"),
    "init_constants": ("vit-tiny-supervised", (1.0, 1.0, 1.0), (2.0, 0.6, 3.0), "model.encoder.init_constants"),
    "third_stage": ("resnet-tiny-supervised", 3, 2, "model.encoder.third_stage"),
    "label_smoothing": ("vit-tiny-supervised", 0.3, 0.1, "objective.label_smoothing"),
    "mixup": ("vit-tiny-supervised", 0.3, 0.8, "objective.mixup"),
    "cutmix": ("vit-tiny-supervised", 0.3, 1.0, "objective.cutmix"),
    "rand_augment": ("vit-tiny-supervised", 5.0, 9.0, "objective.rand_augment"),
    "erase": ("vit-tiny-supervised", 0.5, 0.25, "objective.erase"),
    "drop_path": ("vit-tiny-supervised", 0.3, 0.1, "objective.drop_path"),
    "optimizer": ("shapes", "adamw", "soap", "optim.name"),
    "base_lr": ("shapes", 1e-3, 6e-3, "optim.base_lr"),
    "weight_decay": ("shapes", 0.1, 0.05, "optim.weight_decay"),
    "weight_decay_end": ("shapes", 0.2, 0.4, "optim.weight_decay_end"),
    "weight_decay_on": ("shapes", "all", "matrices", "optim.weight_decay_on"),
    "min_lr": ("shapes", 1e-5, 1e-6, "optim.min_lr"),
    "warmup": ("shapes", 0.2, 0.05, "optim.warmup"),
    "decay": ("shapes", "constant", "cosine", "optim.decay"),
    "clip": ("shapes", 2.0, 1.0, "optim.clip"),
    "ema": ("shapes", 0.9, 0.99, "optim.ema"),
    "crop_scale": ("shapes", (0.5, 1.0), (0.2, 1.0), "data.crop_scale"),
    "mean": ("shapes", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "data.mean"),
    "std": ("shapes", (0.1, 0.2, 0.3), (0.4, 0.5, 0.6), "data.std"),
    "cache_side": ("shapes", "original", 300, "data.cache_side"),
    "tiles": ("shapes", 32, 16, "data.tiles"),
    "seed": ("shapes", 5, 0, "seed"),
    "precision": ("shapes", "bf16", "auto", "precision"),
    "compile": ("shapes", True, False, "compile"),
    "data": ("shapes", "shapes:16", "shapes:16@train", "data.path"),
}
RESOLVED = {"epochs": 3, "precision": "fp32"}  # what the config says where it does not repeat the option


@pytest.fixture(scope="module")
def images():
    return open_images("shapes:16", cache="off")


def options(**given) -> PretrainOptions:
    return PretrainOptions(given.pop("data", "shapes:16"), out=given.pop("out", "run"), **given)


def look_up(config: RunConfig, path: str):
    value = config
    for name in path.split("."):
        value = getattr(value, name)
    return value


def test_the_table_has_every_setting_of_pretrain():
    known = (
        SETTINGS.keys() | REMEMBERED | OF_THE_MOMENT | {"latent", "latent_precision", "time"}
    )  # budget, latent: their tests
    assert {field.name for field in fields(PretrainOptions)} == known


@pytest.mark.parametrize("cls", [PretrainOptions, FinetuneOptions, SampleOptions])
def test_no_setting_of_a_verb_that_resumes_has_a_default_of_its_own(cls):
    for field in fields(cls):
        assert field.name in OF_THE_MOMENT or is_required(field) or field.default is None, field.name


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_given_to_resume_is_honoured_or_refused_by_name(name, images):
    recipe, first, later, path = SETTINGS[name]
    started = configuring.configure(options(**{"recipe": recipe, name: first}), images, TEAM)
    try:
        resumed = configuring.configure(options(resume=True, **{name: later}), images, TEAM, started)
    except ConfigError as error:
        assert str(error).startswith(f"{name} is {later!r}, but the run being resumed has ")
        return
    assert look_up(resumed, path) == RESOLVED.get(name, later) != look_up(started, path)
    if name == "compile":
        assert look_up(started, path) is True


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_is_not_given_stays(name, images):
    recipe, first, _, _ = SETTINGS[name]
    asked = options(**{"recipe": recipe, name: first})
    started = configuring.configure(asked, images, TEAM)
    again = _with_recorded_data(options(data=asked.data, resume=True), Record(started, Remembered()))
    assert configuring.configure(again, images, TEAM, started) == started


def test_what_a_resume_cannot_change_is_refused(images):
    for name in ("recipe", "channels", "conditional"):
        recipe, first, later, _ = SETTINGS[name]
        started = configuring.configure(options(**{"recipe": recipe, name: first}), images, TEAM)
        with pytest.raises(ConfigError, match=f"^{name} is .*, but the run being resumed has .*; leave it out, or"):
            configuring.configure(options(resume=True, **{name: later}), images, TEAM, started)


FINETUNE = {
    "epochs": (3.0, 2.0, "steps"),
    "max_steps": (7, 9, "steps"),
    "batch_size": (4, 8, "batch_size"),
    "accumulate": (2, 1, "accumulate"),
    "base_lr": (1e-3, 5e-4, "optim.base_lr"),
    "layer_decay": (0.8, 0.65, "optim.layer_decay"),
    "weight_decay": (0.1, 0.05, "optim.weight_decay"),
    "min_lr": (1e-5, 1e-6, "optim.min_lr"),
    "warmup": (0.2, 0.05, "optim.warmup"),
    "rand_augment": (5.0, 9.0, "objective.rand_augment"),
    "drop_path": (0.3, 0.1, "objective.drop_path"),
    "mixup": (0.3, 0.8, "objective.mixup"),
    "cutmix": (0.3, 1.0, "objective.cutmix"),
    "label_smoothing": (0.3, 0.1, "objective.label_smoothing"),
    "erase": (0.5, 0.25, "objective.erase"),
    "pooling": ("cls", "patch_mean", "model.pooling"),
    "labels": ("a.csv", "b.csv", "data.labels"),
    "classes": ("a.txt", "b.txt", "data.classes"),
    "seed": (5, 0, "seed"),
    "precision": ("bf16", "fp32", "precision"),
    "compile": (True, False, "compile"),
    "train": ("shapes:16", "shapes:16@train", "data.path"),
}
SOURCE = finetuning.Source(ViTConfig(image_size=(32, 32), patch_size=8), (0.5,) * 3, (0.5,) * 3)


def finetune_options(**given) -> FinetuneOptions:
    return FinetuneOptions("RUN", **({"train": "shapes:16", "test": "shapes:8", "out": "ft"} | given))


def test_the_table_has_every_setting_of_finetune():
    known = FINETUNE.keys() | REMEMBERED | OF_THE_MOMENT | {"run"}
    assert {field.name for field in fields(FinetuneOptions)} <= known


@pytest.mark.parametrize("name", FINETUNE)
def test_a_setting_of_finetune_is_honoured_when_given_and_kept_when_not(name, images):
    first, later, path = FINETUNE[name]
    asked = finetune_options(**{name: first})
    started = finetuning.configure(asked, SOURCE, images, None)
    resumed = finetuning.configure(finetune_options(resume=True, **{name: later}), SOURCE, images, started)
    expected = later if name != "epochs" else 4  # 2 epochs of 16 images in batches of 8
    assert look_up(resumed, path) == expected != look_up(started, path)
    kept = finetune_options(train=asked.train, labels=asked.labels, classes=asked.classes, resume=True)
    assert finetuning.configure(kept, SOURCE, images, started) == started


def recorded(out: Path, config: RunConfig, **remembered) -> Path:
    """What a run leaves that was started with these settings."""
    out.mkdir()
    (out / "config.json").write_text(json.dumps(to_dict(config)))
    (out / "about.json").write_text(json.dumps({"runtime": Remembered(**remembered).to_json()}))
    return out


FIRST = {
    "workers": 0,
    "checkpoint_every": 3,
    "snapshot_every": 4,
    "snapshots": 2,
    "log_every": 5,
    "track": ("tensorboard",),
    "probe_every": 5,
    "probe_data": "shapes:9",
    "probe_labels": "a.csv",
    "shard": True,
    "checkpoint_activations": True,
    "cache": "off",
    "max_bad_fraction": 0.5,
    "test": "shapes:8",
    "test_labels": "a.csv",
    "init": "nowhere",
}
LATER = {
    "workers": 2,
    "checkpoint_every": 50,
    "snapshot_every": 1000,
    "snapshots": 3,
    "log_every": 1,
    "track": ("wandb",),
    "probe_every": 6,
    "probe_data": "shapes:10",
    "probe_labels": "b.csv",
    "shard": False,
    "checkpoint_activations": False,
    "cache": "auto",
    "max_bad_fraction": 0.01,
    "test": "shapes:9",
    "test_labels": "b.csv",
    "init": "elsewhere",
}


@pytest.mark.parametrize("name", sorted(REMEMBERED))
def test_settings_outside_the_config_are_remembered_and_a_given_one_counts(name, tmp_path):
    out = recorded(tmp_path / "run", RunConfig(), **{name: FIRST[name]})
    for given, expected in (({}, FIRST[name]), ({name: LATER[name]}, LATER[name])):
        asked = options(out=out, resume=True, **given)
        assert getattr(with_remembered(asked, read_record(asked)), name) == expected


def test_a_run_of_an_earlier_version_remembers_nothing_and_is_read(tmp_path):
    out = recorded(tmp_path / "run", RunConfig())
    (out / "about.json").write_text('{"command": "echoless pretrain"}')
    assert read_record(options(out=out, resume=True)).remembered == Remembered()
    (out / "about.json").unlink()
    assert read_record(options(out=out, resume=True)).remembered == Remembered()


def test_a_run_is_continued_by_the_verb_that_started_it_and_from_the_same_weights(tmp_path):
    record = read_record(options(out=recorded(tmp_path / "ft", RunConfig(recipe="finetune")), resume=True))
    with pytest.raises(RunError, match="was started by finetune; continue it with echoless finetune"):
        require_verb("pretrain", options(), record)
    (tmp_path / "one").mkdir()
    started = Record(RunConfig(), Remembered(init=str(tmp_path / "one")))
    require_same_start("init", tmp_path / "one", started)
    require_same_start("init", None, started)
    with pytest.raises(RunError, match=r"init is .*two', but the run being resumed started from .*one'"):
        require_same_start("init", tmp_path / "two", started)


QUICK = {"recipe": "demo", "batch_size": 4, "patch_size": 16}


def config_of(run: Path) -> dict:
    return json.loads((run / "config.json").read_text())


def test_the_real_verb_honours_defaults_that_are_given_and_says_what_changed(tmp_path, capsys):
    run = tmp_path / "run"
    first = {"seed": 5, "accumulate": 2, "checkpoint_every": 1, "log_every": 1, "workers": 0}
    assert pretrain("shapes:16", out=run, max_steps=2, **first, **QUICK)
    assert json.loads((run / "about.json").read_text())["runtime"] == {
        "workers": 0,
        "checkpoint_every": 1,
        "log_every": 1,
    }
    capsys.readouterr()
    assert pretrain("shapes:16", out=run, resume=True, max_steps=4, seed=0, accumulate=1, log_every=2)
    said = capsys.readouterr().err
    for line in ("seed: 5 in the record, 0 now", "accumulate: 2 in the record, 1 now", "steps: 2 in the record, 4 now"):
        assert line in said
    assert said.count(" in the record, ") == 3
    assert (config_of(run)["seed"], config_of(run)["accumulate"]) == (0, 1)
    assert json.loads((run / "about.json").read_text())["runtime"] == {
        "workers": 0,
        "checkpoint_every": 1,
        "log_every": 2,
    }
    assert {path.name for path in (run / "checkpoints").glob("step-*")} == {"step-00000003", "step-00000004"}
    with pytest.raises(ConfigError, match="recipe is 'auto', but the run being resumed has 'demo'"):
        pretrain("shapes:16", out=run, resume=True, recipe="auto")


def test_a_first_start_with_resume_begins_from_init(tmp_path, capsys):
    """A scheduler that repeats `--resume --init FROM` must not train from random weights the first time."""
    assert pretrain("shapes:16", out=tmp_path / "from", max_steps=1, **QUICK)
    capsys.readouterr()
    assert pretrain("shapes:16", out=tmp_path / "run", init=tmp_path / "from", resume=True, max_steps=1, **QUICK)
    assert f"{tmp_path / 'from'}" in capsys.readouterr().err
    assert json.loads((tmp_path / "run" / "about.json").read_text())["runtime"]["init"] == str(tmp_path / "from")
    with pytest.raises(RunError, match=r"init is .*run', but the run being resumed started from .*from'"):
        pretrain("shapes:16", out=tmp_path / "run", init=tmp_path / "run", resume=True)


def test_from_another_folder_a_recorded_relative_path_is_named_as_such(tmp_path, monkeypatch):
    """With what to give; what is given is not blamed on the record."""
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    np.savez("a.npz", x=np.random.default_rng(0).integers(0, 256, (16, 32, 32, 3), dtype=np.uint8))
    Path("a.csv").write_text("".join(f"a.npz/{number:08d},{'xy'[number % 2]}\n" for number in range(16)))
    run = tmp_path / "run"
    assert pretrain("a.npz", out=run, labels="a.csv", max_steps=1, **QUICK)
    monkeypatch.chdir(tmp_path / "there")
    found = "which is not found from this folder"
    with pytest.raises(DataError, match=rf"^{run} records DATA 'a\.npz', {found}; give DATA$"):
        pretrain(out=run, resume=True, max_steps=2)
    with pytest.raises(DataError, match=rf"^{run} records --labels 'a\.csv', {found}; give --labels$"):
        pretrain("../here/a.npz", out=run, resume=True, max_steps=2)
    with pytest.raises(DataError, match=rf"^{run}/config\.json records DATA 'a\.npz', {found}; give DATA$"):
        pretrain(out=tmp_path / "again", config=run / "config.json")
    with pytest.raises(DataError, match=r"^data 'a\.npz' does not exist"):
        pretrain("a.npz", out=run, resume=True, labels="none", max_steps=2)
    assert pretrain("../here/a.npz", out=run, resume=True, labels="../here/a.csv", max_steps=2)
