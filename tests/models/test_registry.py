"""The registry knows every architecture: what a kind names, how it starts, and what its config says of its features.

Run alone: pytest tests/models/test_registry.py
"""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
import torch

from echoless.config import (
    DINOConfig,
    MAEConfig,
    MoCoConfig,
    ModelConfig,
    ResNetConfig,
    ShortcutConfig,
    SiTConfig,
    UViTConfig,
    ViTConfig,
    to_dict,
)
from echoless.config.supervised import ClassifierConfig
from echoless.errors import ConfigError
from echoless.models import BODIES, DENOISERS, MODELS, ViT, body_config, build, fresh
from echoless.shortcuts import init_skipless_

NONE = ShortcutConfig(variant="none", alpha_min=1.0)
VIT = ViTConfig(image_size=(8, 8), patch_size=4, width=32, depth=2, heads=2)
RESNET = ResNetConfig(image_size=(8, 8), width=4, stem="cifar")
SIZES = {"image_size": (8, 8), "patch_size": 4, "channels": 3, "width": 32, "depth": 2, "heads": 2}
UVIT, SIT = UViTConfig(**SIZES), SiTConfig(**SIZES)
CONFIGS = {
    "vit": VIT,
    "resnet": RESNET,
    "uvit": UVIT,
    "sit": SIT,
    "mae": MAEConfig(encoder=VIT, decoder_width=32, decoder_depth=2, decoder_heads=2),
    "classifier": ClassifierConfig(encoder=VIT, classes=3),
    "moco": MoCoConfig(encoder=VIT, hidden=8, output=4),
    "dino": DINOConfig(encoder=VIT, hidden=8, bottleneck=4, prototypes=8),
}


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def with_encoder(kind: str, **changes):
    config = CONFIGS[kind]
    return replace(config, encoder=replace(config.encoder, **changes))


def test_every_kind_names_its_config_and_what_can_be_trained_is_in_it():
    for table in (BODIES, MODELS):
        assert all(row.config.kind == kind for kind, row in table.items())
    assert {row.config for row in MODELS.values()} == set(get_args(ModelConfig))
    assert DENOISERS == ("uvit", "sit")


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_a_config_is_built_by_its_kind_and_says_where_its_body_is(kind):
    config = CONFIGS[kind]
    model = build(config, seeded())
    assert type(model) is (BODIES | MODELS)[kind].model and model.config is config
    assert model.body.config == config.body and config.body.kind in BODIES
    assert model.shortcut_record == model.body.shortcut_record


@pytest.mark.parametrize("kind", list(BODIES))
def test_what_a_config_says_of_the_features_is_what_they_are(kind):
    """Names of the layers, number of branches, extra tokens, class token, width: asked of the network itself."""
    config, images = CONFIGS[kind], torch.randn(2, 3, 8, 8, generator=seeded())
    model = build(config, seeded())
    features = model.features(images, torch.zeros(2)) if config.denoises else model.features(images)
    assert tuple(features.block_outputs) == config.feature_layers
    assert sum(name.endswith(("/attn", "/mlp", "/conv")) for name in features) == config.branches
    assert features.has_class_token == config.has_class_token
    last = features[features.last_block]
    assert last.shape[-1] == config.feature_width
    if config.grid is not None:
        assert last.shape[1] == config.extra_tokens + config.grid[0] * config.grid[1]


@pytest.mark.parametrize("kind", list(BODIES))
def test_a_config_comes_back_from_what_was_written(kind):
    assert body_config(kind, to_dict(CONFIGS[kind])) == CONFIGS[kind]
    with pytest.raises(ConfigError, match="kind is 'swin'; allowed: vit, resnet, uvit, sit"):
        body_config("swin", {})


# One rule for blocks without shortcuts.


@pytest.mark.parametrize("kind", list(CONFIGS))
def test_without_shortcuts_the_input_still_reaches_the_last_block_in_every_family(kind):
    """No branch starts at zero where nothing carries the stream beside it, whatever zero_init and gates would say."""
    config = CONFIGS[kind]
    body = replace(config.body, shortcuts=NONE, **({"zero_init": True} if kind not in ("resnet", "sit") else {}))
    model = fresh(body if config.body is config else replace(config, encoder=body), seeded()).body
    images = torch.randn(2, 3, 8, 8, generator=seeded(1))
    features = model.features(images, torch.zeros(2)) if body.denoises else model.features(images)
    last = features[features.last_block]
    assert (last[0] - last[1]).abs().max() > 1e-6


def test_a_sit_without_shortcuts_learns():
    """Its gates start at 1: with closed ones no gradient but that of the output's bias would ever be other than 0."""
    model = fresh(replace(SIT, shortcuts=NONE), seeded())
    images = torch.randn(4, 3, 8, 8, generator=seeded(1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        (model(images, torch.zeros(4)) - images).square().mean().backward()
        optimizer.step()
    assert model.patch_embed.weight.grad.abs().max() > 0


@pytest.mark.parametrize("kind", ["mae", "classifier", "moco", "dino"])
def test_the_skipless_start_is_asked_for_by_init_scheme_alone_and_the_same_in_every_family(kind):
    """variant none changes no weight; init_scheme skipless draws W_V W_O as c^2 times an orthogonal matrix."""

    def product(config) -> torch.Tensor:
        block = fresh(config, seeded()).body.blocks[0]
        return (block.attn.proj.weight @ block.attn.qkv.weight[64:]).detach()

    def is_orthogonal(matrix: torch.Tensor) -> bool:
        return torch.allclose(matrix @ matrix.T, 3.0**4 * torch.eye(32), atol=1e-3)

    default, none = with_encoder(kind, zero_init=False), with_encoder(kind, zero_init=False, shortcuts=NONE)
    assert torch.equal(product(default), product(none)) and not is_orthogonal(product(none))
    assert is_orthogonal(product(with_encoder(kind, shortcuts=NONE, init_scheme="skipless")))


@pytest.mark.parametrize("kind", ["moco", "dino"])
def test_momentum_encoders_start_as_copies_whatever_the_start(kind):
    model = fresh(with_encoder(kind, shortcuts=NONE, init_scheme="skipless"), seeded())
    pair = (model.encoder, model.slow_encoder) if kind == "moco" else (model.teacher.encoder, model.student.encoder)
    for mine, theirs in zip(*(part.parameters() for part in pair)):
        assert torch.equal(mine, theirs)


def test_the_start_of_a_vit_is_its_own_followed_by_the_function_of_shortcuts():
    config = replace(VIT, shortcuts=NONE, init_scheme="skipless", init_constants=(1.8, 1.0, 2.0))
    generator = seeded(3)
    expected = ViT(config, generator)
    init_skipless_(expected, 1.8, 1.0, 2.0, generator=generator)
    for name, tensor in fresh(config, seeded(3)).state_dict().items():
        assert torch.equal(tensor, expected.state_dict()[name]), name


# What observes never changes.


@pytest.mark.parametrize("kind", list(BODIES))
def test_an_observer_changes_nothing_whatever_it_returns(kind):
    config, images = CONFIGS[kind], torch.randn(2, 3, 8, 8, generator=seeded())
    model = build(config, seeded()).eval()
    arguments = (images, torch.zeros(2)) if config.denoises else (images,)
    seen: list[str] = []
    watched = model(*arguments, note=lambda name, value: (seen.append(name), torch.zeros_like(value))[1])
    assert torch.equal(watched, model(*arguments)) and "embed" in seen and config.feature_layers[-1] in seen
