"""How does an encoder become a classifier? A pooled feature, a norm, a linear head. (Legend: models/layers.py.)"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from echoless.config import ViTConfig
from echoless.config.supervised import ClassifierConfig
from echoless.models.features import Features
from echoless.models.layers import ignore, linear
from echoless.models.resnet import ResNet
from echoless.models.vit import ViT


class Classifier(nn.Module):
    """`classifier(images)` gives logits (B, classes)."""

    def __init__(self, config: ClassifierConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        encoder = config.encoder
        self.encoder: ViT | ResNet
        self.norm: nn.Module
        if isinstance(encoder, ViTConfig):
            self.encoder = ViT(encoder, generator)
            self.norm = nn.LayerNorm(encoder.width, eps=encoder.norm_eps)
            self.head = linear(encoder.width, config.classes)
        else:
            self.encoder, self.norm = ResNet(encoder, generator), nn.Identity()
            self.head = linear(encoder.features, config.classes)
        # Small, so that the first gradients are those of the features and not of a random head (He et al. 2022).
        nn.init.trunc_normal_(self.head.weight, std=2e-5, generator=generator)
        nn.init.zeros_(self.head.bias)

    def forward(self, images_BCHW: Tensor, keep_BS: Tensor | None = None) -> Tensor:
        """keep_BS: drop path. The factor of each of the S branches, for each sample."""
        note = ignore if keep_BS is None else DropPath(keep_BS).note
        tokens_BTD = self.encoder(images_BCHW, note=note)
        patches_BND = tokens_BTD[:, 1:] if isinstance(self.encoder, ViT) else tokens_BTD
        pooled = tokens_BTD[:, 0] if self.config.pooling == "cls" else patches_BND.mean(dim=1)
        return self.head(self.norm(pooled))

    def features(self, images_BCHW: Tensor, only: Collection[str] | None = None) -> Features:
        return self.encoder.features(images_BCHW, only)

    @property
    def shortcut_record(self) -> dict[str, Any]:
        return self.encoder.shortcut_record

    def layer_of(self, name: str) -> int:
        """For layer-wise learning rates: 0 for the embeddings, l for block l, blocks + 1 for what follows."""
        parts = name.split(".")
        if parts[:2] == ["encoder", "blocks"]:
            return int(parts[2]) + 1
        return 0 if parts[0] == "encoder" and parts[1] != "norm" else self.config.encoder.blocks + 1


class DropPath:
    """Multiplies each branch by its factor as it passes (arXiv:1603.09382): 0, or 1 / (1 - rate)."""

    def __init__(self, keep_BS: Tensor) -> None:
        self.keep_BS, self.branch = keep_BS, 0

    def note(self, name: str, value: Tensor) -> Tensor:
        if name.endswith(("/attn", "/mlp", "/conv")):
            keep_B = self.keep_BS[:, self.branch].to(value.dtype)
            value = value * keep_B.view(-1, *[1] * (value.ndim - 1))
            self.branch += 1
        return value
