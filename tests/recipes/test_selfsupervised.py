"""The recipes that compare views: what they refuse, what a run leaves behind, and a warm start of both halves.

Run alone: pytest tests/recipes/test_selfsupervised.py.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_comparison, tiny_images, tiny_run

from echoless.config import DataConfig, RunConfig, from_dict, to_dict
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions
from echoless.errors import ConfigError
from echoless.randomness import generator_for
from echoless.recipes.resolve import resolve
from echoless.runs import find_latest_valid, load_checkpoint, load_weights
from echoless.training import build_task, warm_start

FACTS = DataFacts(3, 32, 32, 1000)
RECIPES = ("infonce-tiny", "dino-tiny")


def settled(recipe: str, **options) -> RunConfig:
    return resolve(PretrainOptions("DATA", out="RUN", recipe=recipe, **options), FACTS, DataConfig())


@pytest.mark.parametrize("recipe", RECIPES)
def test_shortcuts_sizes_and_crops_are_the_users_and_the_config_survives_its_file(recipe):
    config = settled(recipe, alpha_min=0.7, image_size=(64,), crop_scale=(0.5, 0.9))
    assert config.model.body.shortcuts.alpha_min == 0.7
    assert [view.size for view in config.views[:2]] == [(64, 64)] * 2
    assert all(view.scale == (0.5, 0.9) for view in config.views[:2])
    assert from_dict(RunConfig, to_dict(config)) == config
    assert settled(recipe, variant="none").model.body.shortcuts.variant == "none"


def test_local_views_are_whole_patches():
    config = settled("dino-tiny")
    assert len(config.views) == 2 + 4
    assert all(side % config.model.body.patch_size == 0 for view in config.views for side in view.size)
    assert config.views[-1].size < config.views[0].size


@pytest.mark.parametrize("recipe", RECIPES)
def test_options_of_other_families_are_refused_in_a_sentence(recipe):
    for option in ({"mask_ratio": 0.5}, {"decoder": "plain"}, {"label_dropout": 0.1}, {"normalize_pixels": True}):
        with pytest.raises(ConfigError, match=f"{next(iter(option))} is not an option of recipe {recipe}"):
            settled(recipe, **option)


def test_a_contrastive_batch_is_never_cut():
    with pytest.raises(ConfigError, match="accumulate is 2; allowed: 1 with infonce"):
        settled("infonce-tiny", accumulate=2)
    with pytest.raises(ConfigError, match="batch_size is 1; allowed: 2 or more with infonce"):
        settled("infonce-tiny", batch_size=1)
    assert settled("dino-tiny", accumulate=2).accumulate == 2


def test_what_a_run_leaves_behind_is_the_teachers_encoder(tmp_path):
    images = tiny_images(16)
    tiny_run(tmp_path / "run", images, tiny_comparison(images, "dino", steps=3))
    found = find_latest_valid(tmp_path / "run" / "checkpoints")
    tensors = load_checkpoint(found.path).tensors["model"]
    kept = load_weights(tmp_path / "run" / "encoder").tensors
    for name, tensor in kept.items():
        assert tensor.equal(tensors[f"teacher.encoder.{name}"])
    assert not kept["patch_embed.weight"].equal(tensors["student.encoder.patch_embed.weight"])
    assert tensors["centre"].abs().max() > 0

    config = tiny_comparison(images, "dino", steps=3)
    model, _ = build_task(config, generator_for(1, "init", 0))
    warm_start(model, tmp_path / "run")
    for name, tensor in kept.items():
        assert model.student.encoder.state_dict()[name].equal(tensor)
        assert model.teacher.encoder.state_dict()[name].equal(tensor)
    other, _ = build_task(tiny_comparison(images, "infonce", steps=3), generator_for(1, "init", 0))
    warm_start(other, tmp_path / "run")
    assert other.encoder.patch_embed.weight.equal(kept["patch_embed.weight"])
    assert other.slow_encoder.patch_embed.weight.equal(kept["patch_embed.weight"])


def test_an_update_does_not_depend_on_how_dinos_batch_is_cut(tmp_path):
    images = tiny_images(16)
    whole = tiny_comparison(images, "dino", steps=2)
    left = []
    for number, accumulate in enumerate((1, 2)):
        out = tmp_path / str(number)
        tiny_run(out, images, replace(whole, accumulate=accumulate))
        left.append(load_checkpoint(find_latest_valid(out / "checkpoints").path).tensors["model"])
    for name, tensor in left[0].items():
        assert torch.allclose(tensor, left[1][name], atol=2e-4), name
