"""Recomputed blocks give the gradients of stored ones, bit for bit, and tell their observers nothing twice."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import tiny_family, tiny_images

from echoless.config import ShortcutConfig, ViTConfig
from echoless.data import Loader
from echoless.models import ViT
from echoless.models.body import blocks_of
from echoless.objectives import LossModule, take
from echoless.randomness import generator_for
from echoless.training import build_task
from echoless.training.recomputation import recompute_blocks


def gradients(loss: LossModule, *batch) -> list[torch.Tensor]:
    loss.zero_grad()
    loss(*batch).backward()
    return [each.grad.clone() for each in loss.parameters() if each.grad is not None]


@pytest.mark.parametrize("family", ["masked", "infonce", "dino", "uvit", "sit"])
def test_gradients_are_bitwise_those_without_recomputation(family):
    images = tiny_images()
    config = tiny_family(images, family)
    model, objective = build_task(config, generator_for(0, "init", 0))
    with torch.no_grad():
        for parameter in model.parameters():  # branches that start at zero would hide a wrong recomputation
            parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator_for(0, "probe", parameter.numel())))
    batch = Loader(
        images,
        size=config.model.image_size,
        batch_size=8,
        seed=0,
        mean=config.data.mean,
        std=config.data.std,
        views=config.views,
    ).batch(0)
    draws = take(objective.draw(8, 0, 0), batch.places_B) | batch.views
    recomputed = copy.deepcopy(model)
    recompute_blocks(recomputed)
    given = (batch.images_BCHW, batch.labels_B, draws)
    stored, again = (
        gradients(LossModule(model, objective), *given),
        gradients(LossModule(recomputed, objective), *given),
    )
    assert len(stored) == len(again) > 10
    assert all(torch.equal(one, other) for one, other in zip(stored, again))
    assert sum(float(one.abs().sum()) for one in stored) > 0


def small_vit() -> ViT:
    sizes = {"image_size": (16, 16), "patch_size": 4, "width": 16, "depth": 3, "heads": 2}
    return ViT(ViTConfig(**sizes, shortcuts=ShortcutConfig(alpha_min=0.6)), generator_for(0, "init", 0))


def test_drop_path_is_the_same_in_both_passes():
    """Its factors are arguments of the block: nothing is drawn inside."""
    stored = small_vit()
    recomputed = copy.deepcopy(stored)
    recompute_blocks(recomputed)
    images = torch.randn(4, 3, 16, 16, generator=generator_for(0, "probe", 0))
    factors = (torch.rand(4, 6, generator=generator_for(0, "dropout", 0)) > 0.5) * 2.0
    for model in (stored, recomputed):
        model(images, drop_path_BS=factors).square().sum().backward()
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(stored.parameters(), recomputed.parameters()))


def test_an_observer_is_told_of_the_first_pass_alone_and_nothing_inside_a_block_is_kept():
    model = small_vit()
    recompute_blocks(model)
    names: list[str] = []
    output = model(torch.zeros(1, 3, 16, 16), note=lambda name, value: names.append(name))
    told = list(names)
    assert told.count("block02/+mlp") == 1
    output.sum().backward()
    assert names == told


def test_names_and_features_do_not_change():
    plain, recomputed = small_vit(), small_vit()
    recompute_blocks(recomputed)
    assert list(plain.state_dict()) == list(recomputed.state_dict())
    images = torch.randn(2, 3, 16, 16, generator=generator_for(0, "probe", 0))
    ours, theirs = recomputed.features(images), plain.features(images)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


def test_every_block_of_every_network_is_found():
    images = tiny_images()
    counts = {"masked": 6 + 2, "infonce": 6 + 6, "dino": 6 + 6, "uvit": 3, "sit": 4}
    for family, count in counts.items():
        model, _ = build_task(tiny_family(images, family), generator_for(0, "init", 0))
        assert len(blocks_of(model)) == count, family
