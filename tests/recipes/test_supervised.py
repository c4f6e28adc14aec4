"""Classifiers are trained by `pretrain`: every variant, judged after every epoch, with the interval in results.json."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import echoless
from echoless.config import DataConfig, MAEConfig, RunConfig, ShortcutConfig, ViTConfig, from_dict, to_dict
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions
from echoless.config.resnet import ResNetConfig
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError, DataError
from echoless.evaluation.frozen import load
from echoless.models import ViT
from echoless.recipes.resolve import resolve
from echoless.shortcuts import find_blocks
from echoless.training import build_task

SMALL = {"max_steps": 4, "batch_size": 16, "workers": 0, "patch_size": 8, "log_every": 4}
FACTS = DataFacts(3, 32, 32, 1000, classes=10)


def settled(recipe: str, **options: object) -> RunConfig:
    return resolve(PretrainOptions("DATA", out="RUN", recipe=recipe, **options), FACTS, DataConfig())


def lines(run: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_vit_supervised_has_the_settings_that_are_reported_for_the_paper():
    """arXiv:2510.00345: rate 1e-3, decay 0.3, smoothing 0.1, mixup 0.8, cutmix 1, erasing 0.25, RandAugment 9."""
    config = settled("vit-supervised")
    said, optim = config.objective, config.optim
    assert (said.label_smoothing, said.mixup, said.cutmix, said.erase, said.rand_augment) == (0.1, 0.8, 1.0, 0.25, 9.0)
    assert said.drop_path == 0.0
    assert (4 * optim.base_lr, optim.betas, optim.weight_decay, optim.clip) == (1e-3, (0.9, 0.95), 0.3, 1.0)
    encoder = config.model.encoder
    assert (encoder.width, encoder.depth, encoder.heads, config.batch_size) == (768, 12, 12, 1024)


@pytest.mark.parametrize("known", [{"bits": 16}, {"channels": 5}], ids=str)
def test_rand_augment_is_left_out_for_images_that_it_is_not_defined_for(known):
    asked = PretrainOptions("DATA", out="RUN", recipe="vit-supervised")
    assert resolve(asked, replace(FACTS, **known), DataConfig()).objective.rand_augment is None


def test_a_residual_free_vit_is_trained_and_judged_after_every_epoch(tmp_path):
    options = {"variant": "none", "init_scheme": "skipless", "test": "shapes:24@test", "snapshot_every": 2}
    assert echoless.pretrain("shapes:32", out=tmp_path / "run", recipe="vit-tiny-supervised", **options, **SMALL)
    judged = [line for line in lines(tmp_path / "run") if "test_accuracy" in line]
    assert [line["step"] for line in judged] == [2, 4], "32 images in batches of 16: an epoch is two steps"
    (result,) = json.loads((tmp_path / "run" / "results.json").read_text())
    assert result["metric"] == "accuracy" and result["n"] == 24 and result["value"] == judged[-1]["test_accuracy"]
    assert result["interval"][0] <= result["value"] <= result["interval"][1]
    assert result["protocol"]["variant"] == "none" and result["protocol"]["start"] == "skipless"
    assert load(tmp_path / "run").layers[-1] == "block11/+mlp"


def test_a_faded_resnet_is_trained_and_its_rank_measured_over_depth_and_training(tmp_path):
    options = {**SMALL, "alpha_min": 0.7, "third_stage": 3, "test": "shapes:24@test", "snapshot_every": 2}
    options.pop("patch_size")
    assert echoless.pretrain("shapes:32", out=tmp_path / "run", recipe="resnet-tiny-supervised", **options)
    encoder = load(tmp_path / "run")
    assert encoder.layers == tuple(f"block{i:02d}/+conv" for i in range(9)) and not encoder.has_class_token
    quiet = {"baselines": False, "train": "shapes:32"}
    over_depth = echoless.evaluate(tmp_path / "run", metrics=("rank",), layers=("all",), **quiet)
    ranks = [metric for metric in over_depth if metric.metric == "rank_paper"]
    assert len({metric.protocol["layer"] for metric in ranks}) == 9
    over_training = echoless.evaluate(tmp_path / "run", metrics=("rank",), snapshots=True, **quiet)
    assert len([metric for metric in over_training if metric.metric == "rank_paper"]) >= 2


def test_only_the_shortcuts_differ_between_the_variants_of_the_recipe():
    plain = settled("vit-tiny-supervised", variant="identity")
    faded = settled("vit-tiny-supervised", alpha_min=0.7)
    none = settled("vit-tiny-supervised", variant="none", init_scheme="skipless", init_constants=(0.7, 4.0, 3.0))
    for other in (faded, none):
        encoder = replace(
            other.model.encoder,
            shortcuts=plain.model.encoder.shortcuts,
            init_scheme="default",
            init_constants=(2.0, 0.6, 3.0),
        )
        assert replace(other, model=replace(other.model, encoder=encoder)) == plain


def test_the_skipless_start_is_drawn_for_training_and_for_nothing_else():
    config = settled("vit-tiny-supervised", variant="none", init_scheme="skipless")
    model, _ = build_task(config, torch.Generator().manual_seed(0))
    block = find_blocks(model.encoder)[0].attention
    product = (block.value.matrix @ block.output.matrix).detach()
    torch.testing.assert_close(product @ product.T, 81 * torch.eye(64), atol=1e-2, rtol=0)
    untouched = ViT(config.model.encoder, torch.Generator().manual_seed(0)).state_dict()
    assert not torch.equal(untouched["blocks.0.attn.proj.weight"], model.encoder.blocks[0].attn.proj.weight)


def test_a_masked_autoencoder_may_have_a_residual_free_encoder_while_its_decoder_stays():
    config = settled("mae-tiny", variant="none", init_scheme="skipless", patch_size=8)
    assert isinstance(config.model, MAEConfig) and config.model.decoder == "long_skips"
    mae, objective = build_task(config, torch.Generator().manual_seed(0))
    assert mae.encoder.shortcut_record == {"variant": "none", "alphas": [0.0] * 24}
    assert not mae.decoder.blocks[0].mlp.fc2.weight.any(), "the decoder's branches start at zero, as they do elsewhere"
    images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    loss = objective.loss(mae, images, None, objective.draw(4, 0, 0))
    loss.backward()
    assert mae.encoder.features(images).pool().std() > 1e-3, "the stream does not end at a branch of zeros"


def test_drop_path_is_off_without_shortcuts():
    assert settled("vit-supervised", variant="none").objective.drop_path == 0
    assert settled("vit-supervised", drop_path=0.1).objective.drop_path == 0.1
    with pytest.raises(ConfigError, match=r"drop_path is 0\.1; allowed: 0 with variant none"):
        settled("vit-supervised", variant="none", drop_path=0.1)


@pytest.mark.parametrize(
    ("recipe", "options", "sentence"),
    [
        (
            "resnet-tiny-supervised",
            {"init_scheme": "skipless"},
            "init_scheme is not an option of recipe resnet-tiny-supervised",
        ),
        ("vit-tiny-supervised", {"third_stage": 4}, "third_stage is not an option of recipe vit-tiny-supervised"),
        ("mae-tiny", {"mixup": 0.5}, "mixup is not an option of recipe mae-tiny"),
        ("vit-tiny-supervised", {"init_constants": (2.0, 0.6, 0.0)}, "c of init_constants is 0.0; allowed"),
        ("resnet-tiny-supervised", {"third_stage": 0}, "third_stage is 0; allowed"),
        ("resnet-tiny-supervised", {"fade": "mlp"}, "blocks have one shortcut each"),
    ],
)
def test_options_that_make_no_sense_are_refused(recipe, options, sentence):
    with pytest.raises(ConfigError, match=sentence):
        settled(recipe, **options)


def test_unlabelled_images_and_tests_of_other_recipes_are_refused_before_any_work(tmp_path):
    with pytest.raises(ConfigError, match="test is 'shapes', but recipe mae-tiny is not supervised"):
        echoless.pretrain("shapes:8", out=tmp_path / "a", recipe="mae-tiny", test="shapes")
    from PIL import Image

    (tmp_path / "flat").mkdir()
    for index in range(2):
        Image.new("RGB", (32, 32), (index, 9, 9)).save(tmp_path / "flat" / f"{index}.png")
    with pytest.raises(DataError, match="DATA has no labels; give sub-folders as classes"):
        echoless.pretrain(tmp_path / "flat", out=tmp_path / "b", recipe="vit-tiny-supervised")


def test_a_classifier_with_a_resnet_survives_json():
    model = ClassifierConfig(encoder=ResNetConfig(third_stage=5, shortcuts=ShortcutConfig(alpha_min=0.6)))
    config = RunConfig(model=model, objective=SupervisedConfig())
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config
    assert from_dict(ClassifierConfig, {"encoder": {"width": 32, "heads": 2}}).encoder == ViTConfig(width=32, heads=2)


@pytest.mark.slow
def test_soap_resumes_bitwise_after_its_bases_were_renewed(tmp_path):
    """Twice ten steps: SOAP renews its bases after every ten, so the second half starts from renewed ones."""
    options = {**SMALL, "max_steps": 24, "checkpoint_every": 12, "optimizer": "soap", "recipe": "vit-tiny-supervised"}
    options |= {"variant": "none", "init_scheme": "skipless", "test": "shapes:8@test"}
    echoless.pretrain("shapes:32", out=tmp_path / "whole", **options)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    shutil.rmtree(tmp_path / "cut" / "checkpoints" / "step-00000024")
    echoless.pretrain("shapes:32", out=tmp_path / "cut", resume=True, **options)
    files = ("model.safetensors", "optim.safetensors")
    for file in files:
        whole, cut = (tmp_path / run / "checkpoints" / "step-00000024" / file for run in ("whole", "cut"))
        assert whole.read_bytes() == cut.read_bytes()


def test_the_verdict_is_written_even_where_the_process_ended_before_it_could_be(tmp_path):
    options = {**SMALL, "recipe": "vit-tiny-supervised", "test": "shapes:24@test"}
    echoless.pretrain("shapes:32", out=tmp_path / "run", **options)
    before = (tmp_path / "run" / "results.json").read_bytes()
    (tmp_path / "run" / "results.json").unlink()
    echoless.pretrain("shapes:32", out=tmp_path / "run", resume=True, **options)
    assert (tmp_path / "run" / "results.json").read_bytes() == before
