"""`pretrain --init FOLDER` and `finetune FOLDER` continue from bodies of transformers: with their function unchanged,
a loss that falls, and a resume that is exact to the bit. What cannot be is one sentence before any work.

    pytest tests/verbs/test_foreign_start.py -s
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from bodies import BODIES, SIDE, difference, make_folder, noise, states_of
from safetensors.torch import load_file, save_file
from tiny import fingerprint

from echoless.cli.main import main
from echoless.config import RunConfig, from_dict
from echoless.errors import EcholessError, RunError
from echoless.exchange import export_encoder, import_checkpoint
from echoless.runs.open import load_body
from echoless.training import loop
from echoless.verbs.closing import trained_where
from echoless.verbs.finetune import finetune
from echoless.verbs.pretrain import pretrain

SHOWN = ("dinov2", "dinov3", "vitmae", "vit", "ijepa")
QUICK = {"batch_size": 16, "workers": 0, "log_every": 1, "base_lr": 2e-2, "labels": "none"}
DATA = "shapes:64"


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    place = tmp_path_factory.mktemp("theirs")
    return {name: make_folder(place / name, name) for name in BODIES}


def lines(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def log_of(run: Path) -> str:
    return (run / "log.txt").read_text()


def difference_said(run: Path) -> float:
    return float(re.search(r"features differ by (\S+) from before", log_of(run))[1])


def config_of(run: Path) -> RunConfig:
    return from_dict(RunConfig, json.loads((run / "config.json").read_text()))


OTHERS = ("dinov3", "vit", "ijepa", "dinov2-registers", "dinov3-gated", "deit", "beit")


@pytest.mark.parametrize("name", ["dinov2", "vitmae", *(pytest.param(name, marks=pytest.mark.slow) for name in OTHERS)])
def test_twenty_steps_of_continued_training_decrease_the_loss(name, folders, tmp_path):
    run = tmp_path / "run"
    assert pretrain(DATA, out=run, init=folders[name], max_steps=20, **QUICK)
    losses = [line["loss"] for line in lines(run)]
    first, last = sum(losses[:3]) / 3, sum(losses[-3:]) / 3
    print(f"{name:17} loss {first:.4f} -> {last:.4f}; features at step 0 differ by {difference_said(run):.1e}")
    assert last < first - 0.01 and difference_said(run) == 0.0
    config = config_of(run)
    assert config.recipe == "continue" and config.data.mean == (0.4, 0.5, 0.6)
    moved = load_body(run).model.state_dict()
    assert set(moved) == set(load_body(run / "checkpoints" / "step-00000020").model.state_dict())


class Killed(BaseException):
    """Nothing is saved, as after SIGKILL."""


def killed_after(step: int, monkeypatch):
    take_step = loop.take_step

    def until_killed(trainee, batch, stop):
        if batch.step == step:
            raise Killed
        return take_step(trainee, batch, stop)

    monkeypatch.setattr(loop, "take_step", until_killed)


@pytest.mark.parametrize("name", SHOWN)
def test_a_killed_run_is_resumed_bit_for_bit_without_the_folder(name, folders, tmp_path, monkeypatch):
    options = QUICK | {"max_steps": 6, "checkpoint_every": 2, "ema": 0.9}
    assert pretrain(DATA, out=tmp_path / "whole", init=folders[name], **options)
    folder = Path(shutil.copytree(folders[name], tmp_path / "theirs"))
    with monkeypatch.context() as patch:
        killed_after(3, patch)
        with pytest.raises(Killed):
            pretrain(DATA, out=tmp_path / "run", init=folder, **options)
    shutil.rmtree(folder)
    assert pretrain(DATA, out=tmp_path / "run", resume=True)
    assert fingerprint(tmp_path / "run", 6) == fingerprint(tmp_path / "whole", 6)


def test_a_run_killed_before_its_first_checkpoint_starts_from_the_folder_again(folders, tmp_path, monkeypatch):
    options = QUICK | {"max_steps": 3, "checkpoint_every": 3}
    assert pretrain(DATA, out=tmp_path / "whole", init=folders["dinov2"], **options)
    with monkeypatch.context() as patch:
        killed_after(1, patch)
        with pytest.raises(Killed):
            pretrain(DATA, out=tmp_path / "run", init=folders["dinov2"], **options)
    assert pretrain(DATA, out=tmp_path / "run", resume=True)
    assert fingerprint(tmp_path / "run", 3) == fingerprint(tmp_path / "whole", 3)


def test_the_trained_body_goes_back_to_transformers(folders, tmp_path):
    assert pretrain(DATA, out=tmp_path / "run", init=folders["dinov3"], max_steps=3, **QUICK)
    report = export_encoder(tmp_path / "run", "hf", tmp_path / "again")
    assert report.verified and report.settings["class"] == "DINOv3ViTModel"
    images = noise(2, 3, SIDE, SIDE)
    ours = load_body(tmp_path / "run").model.features(images)
    again, before = states_of(tmp_path / "again", images), states_of(folders["dinov3"], images)
    assert difference(again[-1], ours["norm"]) < 1e-5 < difference(again[-1], before[-1])
    assert json.loads((tmp_path / "again" / "preprocessor_config.json").read_text())["image_mean"] == [0.4, 0.5, 0.6]


def test_a_vitmae_brings_its_decoder_and_its_loss(folders, tmp_path):
    """The first loss is that of transformers' own ViTMAEForPreTraining with our mask, not that of a new decoder."""
    import transformers

    from echoless.config.options import PretrainOptions
    from echoless.models import MAE
    from echoless.objectives import masked_loss, masking_from_noise
    from echoless.training import warm_start
    from echoless.verbs.starting import open_start

    assert pretrain(DATA, out=tmp_path / "run", init=folders["vitmae"], max_steps=1, **QUICK)
    config = config_of(tmp_path / "run")
    assert (config.model.decoder, config.model.decoder_width, config.model.decoder_depth) == ("plain", 32, 2)
    model = MAE(config.model)
    warm_start(model, open_start(PretrainOptions(DATA, out="run", init=folders["vitmae"])))
    theirs = transformers.ViTMAEForPreTraining.from_pretrained(folders["vitmae"]).eval()
    images, drawn = noise(3, 3, SIDE, SIDE), torch.rand(3, 16, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        expected = theirs(images, noise=drawn).loss
        found = masked_loss(model, images, masking_from_noise(drawn, 0.75), config.objective)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0)


def test_another_image_size_interpolates_the_positions(folders, tmp_path):
    for name in ("dinov2", "beit", "dinov3"):
        run = tmp_path / name
        assert pretrain(DATA, out=run, init=folders[name], image_size=(48,), max_steps=1, **QUICK)
        assert "positions interpolated from 32 x 32 to 48 x 48" in log_of(run)
        assert difference_said(run) < 1e-5 and config_of(run).model.encoder.image_size == (48, 48)
        images = noise(2, 3, 48, 48)
        features = load_body(run).model.features(images)
        assert features["embed"].shape == states_of(folders[name], images)[0].shape


def test_a_plain_body_is_faded_with_its_function_kept_in_both_ways(folders, tmp_path):
    assert pretrain(DATA, out=tmp_path / "moved", init=folders["dinov2"], alpha_min=0.6, max_steps=1, **QUICK)
    assert 0 < difference_said(tmp_path / "moved") < 1e-5
    options = {"alpha_min": 0.6, "fade_in": 0.5, "max_steps": 4}
    assert pretrain(DATA, out=tmp_path / "ramp", init=folders["dinov2"], **options, **QUICK)
    assert difference_said(tmp_path / "ramp") == 0.0
    assert [round(line["alpha_min"], 3) for line in lines(tmp_path / "ramp")] == [0.8, 0.6, 0.6, 0.6]
    assert load_body(tmp_path / "ramp").model.shortcut_record["alphas"][-1] == 0.6


def test_dino_continues_with_the_body_and_with_its_head_where_there_is_one(folders, tmp_path):
    folder = Path(shutil.copytree(folders["dinov2"], tmp_path / "theirs"))
    options = QUICK | {"recipe": "dino-tiny", "max_steps": 2}
    assert pretrain(DATA, out=tmp_path / "run", init=folder, **options)
    assert "head" not in log_of(tmp_path / "run").partition("started from")[2]
    head = published_head(width=48, hidden=40, bottleneck=24, prototypes=56)
    save_file(load_file(folder / "model.safetensors") | head, folder / "model.safetensors")
    assert pretrain(DATA, out=tmp_path / "headed", init=folder, **options | {"base_lr": 0.0, "weight_decay": 0.0})
    assert "student and teacher have its head" in log_of(tmp_path / "headed")
    state = load_file(tmp_path / "headed" / "checkpoints" / "step-00000002" / "model.safetensors")
    x = noise(3, 48)
    for branch in ("student", "teacher"):
        torch.testing.assert_close(our_scores(state, branch, x), published_scores(head, x), rtol=1e-5, atol=1e-6)


def published_head(width: int, hidden: int, bottleneck: int, prototypes: int) -> dict[str, torch.Tensor]:
    """Under the names of facebookresearch/dinov2."""
    sizes = ((0, width, hidden), (2, hidden, hidden), (4, hidden, bottleneck))
    head = {f"dino_head.mlp.{i}.weight": 0.2 * noise(outputs, inputs) for i, inputs, outputs in sizes}
    head |= {f"dino_head.mlp.{i}.bias": 0.1 * noise(outputs) for i, _, outputs in sizes}
    last = {"weight_v": noise(prototypes, bottleneck), "weight_g": torch.ones(prototypes, 1)}
    return head | {f"dino_head.last_layer.{name}": tensor for name, tensor in last.items()}


def published_scores(head: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """As the published module computes them: weight normalisation by torch, a bottleneck of length 1."""
    layers = []
    for i in (0, 2, 4):
        weight = head[f"dino_head.mlp.{i}.weight"]
        layer = torch.nn.Linear(weight.shape[1], weight.shape[0])
        layer.load_state_dict({"weight": weight, "bias": head[f"dino_head.mlp.{i}.bias"]})
        layers += [layer, torch.nn.GELU()]
    prototypes = head["dino_head.last_layer.weight_v"]
    last = torch.nn.utils.parametrizations.weight_norm(
        torch.nn.Linear(prototypes.shape[1], len(prototypes), bias=False)
    )
    with torch.no_grad():
        last.parametrizations.weight.original1.copy_(prototypes)
        last.parametrizations.weight.original0.fill_(1)
        return last(torch.nn.functional.normalize(torch.nn.Sequential(*layers[:-1])(x), dim=-1))


def our_scores(state: dict[str, torch.Tensor], branch: str, x: torch.Tensor) -> torch.Tensor:
    from echoless.config import DINOConfig
    from echoless.models.dino import Head

    prefix = f"{branch}.head."
    own = {name[len(prefix) :]: tensor for name, tensor in state.items() if name.startswith(prefix)}
    prototypes, bottleneck = own["prototypes"].shape
    sizes = {"hidden": len(own["fc1.bias"]), "bottleneck": bottleneck, "prototypes": prototypes}
    from echoless.config import ViTConfig

    head = Head(DINOConfig(encoder=ViTConfig(width=48, heads=4), **sizes))
    head.load_state_dict(own)
    with torch.no_grad():
        return head(x)


@pytest.mark.parametrize("name", ["dinov2-registers", "ijepa"])
def test_finetune_takes_a_folder(name, folders, tmp_path):
    options = {"train": DATA, "test": "shapes:32@test", "max_steps": 4, "batch_size": 16, "workers": 0}
    metric = finetune(folders[name], out=tmp_path / "run", **options)
    assert 0 <= metric.value <= 1 and difference_said(tmp_path / "run") == 0.0
    config = config_of(tmp_path / "run")
    assert config.model.kind == "classifier" and not config.model.encoder.final_norm
    assert config.data.mean == (0.4, 0.5, 0.6)
    assert finetune(folders[name], out=tmp_path / "run", resume=True, train=DATA, test="shapes:32@test") is not None


def test_a_supervised_recipe_takes_a_folder(folders, tmp_path):
    options = {"recipe": "vit-tiny-supervised", "max_steps": 2, "batch_size": 16, "workers": 0}
    assert pretrain("shapes:64", out=tmp_path / "run", init=folders["vit"], **options)
    assert config_of(tmp_path / "run").model.encoder.width == 48


def test_a_run_that_continued_is_continued_again(folders, tmp_path):
    """Its encoder has parts that no recipe has; a run of our own is a start like any other."""
    assert pretrain(DATA, out=tmp_path / "a", init=folders["dinov3"], max_steps=2, **QUICK)
    assert pretrain(DATA, out=tmp_path / "b", init=tmp_path / "a", max_steps=1, **QUICK)
    assert config_of(tmp_path / "b").model == config_of(tmp_path / "a").model
    assert "checkpoint of step 2" in log_of(tmp_path / "b") and difference_said(tmp_path / "b") == 0.0
    assert pretrain(DATA, out=tmp_path / "c", init=tmp_path / "a", recipe="dino-tiny", max_steps=1, **QUICK)
    assert config_of(tmp_path / "c").model.encoder.registers == 4


def test_grey_images_are_converted_for_an_encoder_of_colours(folders, tmp_path):
    from PIL import Image

    (tmp_path / "grey").mkdir()
    for index in range(16):
        Image.new("L", (40, 40), 10 * index).save(tmp_path / "grey" / f"{index}.png")
    options = QUICK | {"batch_size": 4}
    assert pretrain(tmp_path / "grey", out=tmp_path / "run", init=folders["vit"], max_steps=1, **options)
    assert config_of(tmp_path / "run").data.channels == 3


# --- what cannot be ---


def sentence(tmp_path: Path, **options) -> str:
    with pytest.raises(EcholessError) as caught:
        pretrain(DATA, out=tmp_path / "refused", **QUICK | {"max_steps": 1} | options)
    said = str(caught.value)
    print(said)
    assert "\n" not in said and not (tmp_path / "refused" / "config.json").exists()
    return said


def test_refusals_are_one_sentence_before_any_work(folders, tmp_path):
    dinov2 = folders["dinov2"]
    assert "is not a folder; allowed: a run" in sentence(tmp_path, init=tmp_path / "nowhere")
    said = sentence(tmp_path, init=dinov2, recipe="sit-tiny", labels=None)
    assert "holds a vit, but recipe sit-tiny trains a sit; give the --recipe of its kind" in said
    said = sentence(tmp_path, init=folders["ijepa"], recipe="dino-tiny")
    assert said == "class_token is False; allowed: True with DINO, which compares class tokens"
    said = sentence(tmp_path, init=dinov2, depth=2)
    assert said.endswith("does not fit this model: depth is 3 there and 2 here")
    assert "image height is 36; allowed: a multiple of the patch size 8" in sentence(
        tmp_path, init=dinov2, image_size=(36,)
    )
    assert "recipe is 'continue', but --init is missing" in sentence(tmp_path, recipe="continue")


def test_a_folder_that_cannot_be_held_says_why(tmp_path):
    relu = make_folder(tmp_path / "relu", "vit", hidden_act="relu")
    assert "hidden_act is 'relu'" in sentence(tmp_path, init=relu)
    with pytest.raises(EcholessError, match="hidden_act is 'relu'"):
        finetune(relu, out=tmp_path / "refused", train=DATA, test=DATA)


def test_weights_that_are_not_finite_are_refused(folders, tmp_path):
    folder = Path(shutil.copytree(folders["vit"], tmp_path / "theirs"))
    state = load_file(folder / "model.safetensors")
    state["layernorm.weight"][0] = torch.nan
    save_file(state, folder / "model.safetensors")
    assert "numbers that are not finite" in sentence(tmp_path, init=folder)


def test_other_weights_are_not_taken_for_the_start_of_a_run(folders, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(folders["vit"], tmp_path / "theirs"))
    with monkeypatch.context() as patch:
        killed_after(0, patch)
        with pytest.raises(Killed):
            pretrain(DATA, out=tmp_path / "run", init=folder, max_steps=2, **QUICK)
    shutil.rmtree(folder)
    shutil.copytree(folders["dinov2"], folder)
    with pytest.raises(RunError, match="other weights than those the run started from"):
        pretrain(DATA, out=tmp_path / "run", resume=True)


def test_what_evaluate_advises_follows_from_who_trained_the_weights(folders, tmp_path, capsys, monkeypatch):
    """A folder of transformers has no run that --resume could continue; a snapshot has one."""
    sets = ["--train", "shapes:80", "--test", "shapes:80@test", "--metrics", "knn", "--k", "3", "--device", "cpu"]
    assert main(["evaluate", str(folders["vit"]), *sets]) == 0
    advice = " ".join(capsys.readouterr().out.partition("Next: ")[2].split())
    assert advice.startswith(f"Train it on your images (echoless pretrain DATA --init {folders['vit']} --out RUN)")
    assert pretrain(DATA, out=tmp_path / "run", max_steps=1, snapshot_every=1, **QUICK)
    import_checkpoint(folders["vitmae"], tmp_path / "run" / "imported")
    verbs = {"run": "pretrain", "run/encoder": "pretrain", "run/snapshots/step-00000001": "pretrain"}
    copied = {"run/imported": "", "run/copy of it": "", "run/copies/step-00000001": "", "nowhere": ""}
    for place in copied:
        if place.startswith("run/cop"):
            shutil.copytree(folders["vit"], tmp_path / place)
    monkeypatch.chdir(tmp_path / "run")  # whose config.json was taken for that of "../my vit"
    shutil.copytree(folders["vit"], tmp_path / "my vit")
    for place, verb in (verbs | copied | {"my vit": ""}).items():
        assert trained_where(tmp_path / place) == trained_where(Path("..") / place) == verb, place
