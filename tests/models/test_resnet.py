"""With alpha 1 our ResNet is transformers' ResNet-18; with alpha below 1 it is that model faded from outside."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from echoless.config import ShortcutConfig
from echoless.config.resnet import ResNetConfig
from echoless.errors import ConfigError
from echoless.models import count_parameters
from echoless.models.resnet import ResNet
from echoless.shortcuts import alphas, fade

transformers = pytest.importorskip("transformers")


def theirs(third_stage: int = 2, width: int = 64) -> nn.Module:
    config = transformers.ResNetConfig(
        layer_type="basic",
        embedding_size=width,
        hidden_sizes=[width, 2 * width, 4 * width, 8 * width],
        depths=[2, 2, third_stage, 2],
        downsample_in_first_stage=False,
    )
    model = transformers.ResNetModel(config).eval()
    generator = torch.Generator().manual_seed(0)
    for tensor in model.state_dict().values():  # running statistics too, so that every norm does something
        if tensor.is_floating_point():
            drawn = torch.rand(tensor.shape, generator=generator)
            tensor.copy_((drawn - 0.5) * 3.5 / tensor[0].numel() ** 0.5 if tensor.ndim == 4 else drawn + 0.5)
    return model


def ours(third_stage: int = 2, width: int = 64, alpha_min: float = 1.0, stem: str = "imagenet") -> ResNet:
    config = ResNetConfig(
        image_size=(64, 64),
        width=width,
        third_stage=third_stage,
        stem=stem,
        shortcuts=ShortcutConfig(alpha_min=alpha_min),
    )
    return ResNet(config, torch.Generator().manual_seed(1)).eval()


def copy_weights(source: nn.Module, target: ResNet) -> None:
    """Layer by layer, by the names of both."""
    pairs = [(source.embedder.embedder, target.stem[0], target.stem[1])]
    layers = [layer for stage in source.encoder.stages for layer in stage.layers]
    for layer, block in zip(layers, target.blocks, strict=True):
        pairs += [(layer.layer[0], block.conv1, block.bn1), (layer.layer[1], block.conv2, block.bn2)]
        if hasattr(layer.shortcut, "convolution"):
            pairs.append((layer.shortcut, *block.project))
    for pair, convolution, norm in pairs:
        convolution.load_state_dict(pair.convolution.state_dict())
        norm.load_state_dict(pair.normalization.state_dict())
    assert sum(map(torch.numel, source.parameters())) == count_parameters(target)


def test_resnet18_has_the_published_number_of_parameters():
    """11,689,512 with the linear layer of 1000 classes, 512 * 1000 + 1000 of them its own."""
    assert count_parameters(ours()) == 11_689_512 - 513_000


@pytest.mark.parametrize("third_stage", [2, 10])
@torch.no_grad()
def test_alpha_one_is_transformers_resnet(third_stage):
    reference, model = theirs(third_stage, width=8), ours(third_stage, width=8)
    copy_weights(reference, model)
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    expected = reference(images, output_hidden_states=True)
    tokens = expected.last_hidden_state.flatten(2).transpose(1, 2)
    torch.testing.assert_close(model(images), tokens)
    torch.testing.assert_close(model.features(images).pool(), expected.pooler_output.flatten(1))


@torch.no_grad()
def test_faded_shortcuts_are_those_of_transformers_resnet_faded_from_outside_projections_included():
    reference, model = theirs(4, width=8), ours(4, width=8, alpha_min=0.6)
    copy_weights(reference, model)
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(2))
    plain = reference(images).pooler_output.flatten(1)
    report = fade(reference, alpha_min=0.6, example=images, include="projections")
    assert [s.alpha for s in report.shortcuts] == list(alphas(shortcuts=10, alpha_min=0.6))
    faded = reference(images).pooler_output.flatten(1)
    torch.testing.assert_close(model.features(images).pool(), faded)
    assert not torch.allclose(faded, plain, rtol=0.01), "the check can fail"


def test_features_have_a_name_for_every_block_and_are_the_same_in_any_mode():
    model = ours(third_stage=3, width=8, alpha_min=0.7, stem="cifar").train()
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    features = model.features(images)
    assert list(features)[:3] == ["embed", "block00/conv", "block00/+conv"] and len(features) == 1 + 2 * 9
    assert features.last_block == "block08/+conv" and features["block08/+conv"].shape == (2, 16, 64)
    assert model.training and features.pool().equal(model.eval().features(images).pool())
    assert model.shortcut_record == {"variant": "faded", "alphas": list(alphas(shortcuts=9, alpha_min=0.7))}


@pytest.mark.parametrize("change", [{"third_stage": 0}, {"stem": "none"}, {"shortcuts": ShortcutConfig(fade="mlp")}])
def test_bad_settings_are_refused(change):
    with pytest.raises(ConfigError, match="allowed"):
        ResNetConfig(**change)
