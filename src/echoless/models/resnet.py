"""How are the shortcuts of a ResNet faded? In every block, projection shortcuts included.

ResNet-18 of arXiv:1512.03385 with blocks repeated in its third stage, as section B.2 of arXiv:2404.10947 has it:
x <- ReLU(alpha_l * P_l(x) + f_l(x)), where P_l is the identity or, where the size changes, a 1 x 1 convolution.

Shapes (legend: models/layers.py): x_BCHW. Features are given as tokens (B, H * W, C), one per place of the map.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from echoless.config.resnet import ResNetConfig
from echoless.models.body import Backbone
from echoless.models.features import Features
from echoless.models.global_batch import GlobalBatchNorm2d
from echoless.models.layers import Note, drop_path, ignore, uninitialised
from echoless.shortcuts import Shortcut, alphas, evaluating, make_shortcut


class ConvBlock(nn.Module):
    """Two 3 x 3 convolutions beside a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int, shortcut: Shortcut) -> None:
        super().__init__()
        self.conv1, self.bn1 = convolution(inputs, outputs, 3, stride), GlobalBatchNorm2d(outputs)
        self.conv2, self.bn2 = convolution(outputs, outputs, 3), GlobalBatchNorm2d(outputs)
        same = inputs == outputs and stride == 1
        project = nn.Sequential(convolution(inputs, outputs, 1, stride), GlobalBatchNorm2d(outputs))
        self.project: nn.Module = nn.Identity() if same else project
        self.shortcut = shortcut

    def forward(
        self, x_BCHW: Tensor, note: Note = ignore, name: str = "block", drop_path_B1: Tensor | None = None
    ) -> Tensor:
        branch = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x_BCHW)))))
        branch = drop_path(branch, drop_path_B1, 0)
        note(f"{name}/conv", branch)
        x_BCHW = torch.relu(self.shortcut(self.project(x_BCHW), branch))
        note(f"{name}/+conv", x_BCHW)
        return x_BCHW


class ResNet(Backbone):
    """`resnet(images)` gives the last feature map as tokens (B, H * W, C)."""

    def __init__(self, config: ResNetConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.stem = _stem(config)
        schedule = alphas(
            shortcuts=config.blocks, alpha_min=config.shortcuts.alpha_min, schedule=config.shortcuts.schedule
        )
        joins = iter([make_shortcut(config.shortcuts.variant, alpha) for alpha in schedule])
        blocks, inputs = [], config.width
        for stage, count in enumerate(config.stages):
            outputs = config.width * 2**stage
            for index in range(count):
                blocks.append(ConvBlock(inputs, outputs, 2 if stage and not index else 1, next(joins)))
                inputs = outputs
        self.blocks = nn.ModuleList(blocks)
        for layer in self.modules():  # arXiv:1502.01852
            if isinstance(layer, nn.Conv2d):
                nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu", generator=generator)

    def forward(self, images_BCHW: Tensor, note: Note = ignore, drop_path_BS: Tensor | None = None) -> Tensor:
        self.check_images(images_BCHW)
        x_BCHW = self.stem(images_BCHW)
        note("embed", x_BCHW)
        for index, block in enumerate(self.blocks):
            factors_B1 = None if drop_path_BS is None else drop_path_BS[:, index : index + 1]
            x_BCHW = block(x_BCHW, note, f"block{index:02d}", factors_B1)
        return tokens(x_BCHW)

    @torch.no_grad()
    def features(self, images_BCHW: Tensor, only: Collection[str] | None = None) -> Features:
        """Every named intermediate as tokens: `embed`, then `block03/conv` (the branch) and `block03/+conv`."""
        features = Features(only, self.config.extra_tokens, class_token=self.config.has_class_token)
        with evaluating(self):
            self(images_BCHW, lambda name, x_BCHW: features.note(name, tokens(x_BCHW)))
        return features

    def head_norm(self) -> nn.Module:
        """No norm before the linear head: the blocks end in batch norms."""
        return nn.Identity()

    @property
    def shortcuts(self) -> list[Shortcut]:
        return [block.shortcut for block in self.blocks if isinstance(block, ConvBlock)]


def tokens(x_BCHW: Tensor) -> Tensor:
    """One token per place of a map: (B, H * W, C)."""
    return x_BCHW.flatten(2).transpose(1, 2)


def convolution(inputs: int, outputs: int, kernel: int, stride: int = 1) -> nn.Conv2d:
    """Uninitialised, and without a bias because a batch norm follows."""
    return uninitialised(nn.Conv2d, inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


def _stem(config: ResNetConfig) -> nn.Sequential:
    if config.stem == "cifar":
        return nn.Sequential(convolution(config.channels, config.width, 3), GlobalBatchNorm2d(config.width), nn.ReLU())
    first = convolution(config.channels, config.width, 7, 2)
    return nn.Sequential(first, GlobalBatchNorm2d(config.width), nn.ReLU(), nn.MaxPool2d(3, stride=2, padding=1))
