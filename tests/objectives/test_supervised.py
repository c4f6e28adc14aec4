"""Supervised training minimises cross-entropy; each regulariser does what its paper says and is off at 0."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from echoless.config import ShortcutConfig, ViTConfig
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError
from echoless.models.classifier import Classifier
from echoless.objectives.drop_path import drop_path_factors
from echoless.objectives.supervised import SupervisedObjective, erase, mix
from echoless.shortcuts import effective_alpha

PLAIN = SupervisedConfig(label_smoothing=0, mixup=0, cutmix=0, erase=0, drop_path=0)
ENCODER = ViTConfig(
    image_size=(16, 16), patch_size=4, width=32, depth=3, heads=2, shortcuts=ShortcutConfig(alpha_min=0.7)
)


def classifier() -> Classifier:
    model = Classifier(ClassifierConfig(encoder=ENCODER, classes=4), torch.Generator().manual_seed(0))
    for parameter in model.parameters():
        if not parameter.any():
            torch.nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(1))
    return model


def batch(generator):
    return torch.randn(6, 3, 16, 16, generator=generator), torch.tensor([0, 1, 2, 3, 0, 1])


def test_with_everything_off_it_is_cross_entropy(generator):
    model, (images, labels) = classifier(), batch(generator)
    objective = SupervisedObjective(PLAIN, 4, 6)
    loss = objective.loss(model, images, labels, objective.draw(6, 0, 0))
    torch.testing.assert_close(loss, F.cross_entropy(model(images), labels))


def test_label_smoothing_is_torchs(generator):
    model, (images, labels) = classifier(), batch(generator)
    objective = SupervisedObjective(replace(PLAIN, label_smoothing=0.1), 4, 6)
    loss = objective.loss(model, images, labels, objective.draw(6, 0, 0))
    torch.testing.assert_close(loss, F.cross_entropy(model(images), labels, label_smoothing=0.1))


def test_mixup_blends_images_and_labels_by_the_same_weight(generator):
    images, labels = batch(generator)
    targets = F.one_hot(labels, 4).float()
    mixed, mixed_targets = mix(images, targets, torch.tensor([[0.3, 0.0]]).expand(6, 2), torch.rand(6, 8))
    torch.testing.assert_close(mixed, 0.3 * images + 0.7 * images.flip(0))
    torch.testing.assert_close(mixed_targets, 0.3 * targets + 0.7 * targets.flip(0))


def test_cutmix_weighs_labels_by_the_area_that_was_pasted(generator):
    images, labels = batch(generator)
    targets = F.one_hot(labels, 4).float()
    place = torch.full((6, 8), 0.5)
    mixed, mixed_targets = mix(images, targets, torch.tensor([[0.75, 1.0]]).expand(6, 2), place)
    kept = (mixed == images).all(dim=1).float().mean(dim=(1, 2))
    assert kept[0] == pytest.approx(0.75, abs=0.01)
    torch.testing.assert_close(mixed_targets, kept[0] * targets + (1 - kept[0]) * targets.flip(0))


def test_erasing_hits_the_share_of_images_asked_for(generator):
    images = torch.ones(4000, 1, 16, 16)
    erased = erase(images, torch.rand(4000, 8, generator=generator), torch.arange(4000), 0.25)
    assert (erased.flatten(1) != 1).any(dim=1).float().mean().item() == pytest.approx(0.25, abs=0.03)
    area = (erased.flatten(1) != 1).float().mean(dim=1)
    assert area.max() < 0.5


def test_what_is_erased_becomes_noise_for_each_pixel_and_depends_on_the_sample_alone(generator):
    """Random erasing in the "pixel" mode: standard normal, other values in every pixel and channel, one rectangle."""
    images, uniform, seeds = torch.full((64, 3, 16, 16), 9.0), torch.rand(64, 8, generator=generator), torch.arange(64)
    erased = erase(images, uniform, seeds, 1.0)
    hit = erased != 9
    assert torch.equal(hit[:, :1].expand_as(hit), hit), "all channels of a pixel"
    rows, columns = hit[:, 0].any(dim=2), hit[:, 0].any(dim=1)
    assert torch.equal(hit[:, 0], rows[:, :, None] & columns[:, None, :]), "a rectangle"
    noise = erased[hit]
    assert abs(noise.mean().item()) < 0.05 and noise.std().item() == pytest.approx(1, abs=0.05)
    assert noise.unique().numel() > 0.99 * noise.numel()
    part = slice(17, 23)
    assert torch.equal(erase(images[part], uniform[part], seeds[part], 1.0), erased[part]), "however a batch is cut"


def test_noise_is_erased_in_before_images_are_mixed():
    """As in timm: the loss is that of the erased images, mixed; the other order leaves the noise of one whole."""
    objective = SupervisedObjective(replace(PLAIN, erase=1.0, mixup=0.8), 4, 6)
    images, labels = torch.full((4, 3, 16, 16), 9.0), torch.arange(4)
    draws, seen = objective.draw(4, 0, 0), []

    def model(images, drop_path):
        seen.append(images)
        return torch.zeros(4, 4)

    objective.loss(model, images, labels, draws)
    erased = erase(images, draws["uniform"], draws["noise_seed"], 1.0)
    weight = float(draws["mix"][0, 0])
    assert 0 < weight < 1 and not draws["mix"][0, 1]
    torch.testing.assert_close(seen[0], weight * erased + (1 - weight) * erased.flip(0))


def test_drop_path_drops_whole_branches_and_keeps_the_mean():
    objective = SupervisedObjective(replace(PLAIN, drop_path=0.4), 4, 6)
    keep = drop_path_factors(objective.draw(50_000, 0, 0)["keep"], 0.4)
    torch.testing.assert_close(keep.mean(dim=0), torch.ones(6), rtol=0, atol=0.02)
    dropped = (keep == 0).float().mean(dim=0)
    torch.testing.assert_close(dropped, torch.tensor([0, 0, 0.2, 0.2, 0.4, 0.4]), rtol=0, atol=0.01)


@torch.no_grad()
def test_a_dropped_branch_leaves_the_faded_stream(generator):
    """With every branch dropped, what reaches the head is the embedding times the effective alpha."""
    model, (images, _) = classifier(), batch(generator)
    seen = {}
    note = lambda name, value: seen.setdefault(name, value)  # noqa: E731
    model.encoder(images, note=note)
    dropped = model.encoder(images, drop_path_BS=torch.zeros(6, 6))
    torch.testing.assert_close(dropped, effective_alpha(model.shortcut_record["alphas"]) * seen["embed"])


def test_training_without_labels_is_refused(generator):
    objective = SupervisedObjective(PLAIN, 4, 6)
    with pytest.raises(ConfigError, match="supervised training needs labels"):
        objective.loss(classifier(), torch.zeros(1, 3, 16, 16), None, objective.draw(1, 0, 0))


def test_layers_are_numbered_from_the_embeddings_to_the_head():
    model = classifier()
    layers = {name: model.layer_of(name) for name, _ in model.named_parameters()}
    assert layers["encoder.patch_embed.weight"] == 0 and layers["encoder.cls_token"] == 0
    assert layers["encoder.blocks.0.attn.qkv.weight"] == 1 and layers["encoder.blocks.2.mlp.fc2.bias"] == 3
    assert layers["norm.weight"] == layers["head.bias"] == 4
