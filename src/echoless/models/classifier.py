"""How does an encoder become a classifier? A pooled feature, a norm, a linear head. (Legend: models/layers.py.)"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

from echoless.config.supervised import ClassifierConfig
from echoless.models.features import Features
from echoless.models.layers import ignore, linear
from echoless.models.vit import ViT


class Classifier(nn.Module):
    """`classifier(images)` gives logits (B, classes)."""

    def __init__(self, config: ClassifierConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = ViT(config.encoder, generator)
        self.norm = nn.LayerNorm(config.encoder.width, eps=config.encoder.norm_eps)
        self.head = linear(config.encoder.width, config.classes)
        # Small, so that the first gradients are those of the features and not of a random head (He et al. 2022).
        nn.init.trunc_normal_(self.head.weight, std=2e-5, generator=generator)
        nn.init.zeros_(self.head.bias)

    def forward(self, images_BCHW: Tensor, keep_BS: Tensor | None = None) -> Tensor:
        """keep_BS: drop path. The factor of each of the S = 2 * depth branches, for each sample."""
        note = ignore if keep_BS is None else DropPath(keep_BS).note
        tokens_BTD = self.encoder(images_BCHW, note=note)
        pooled = tokens_BTD[:, 0] if self.config.pooling == "cls" else tokens_BTD[:, 1:].mean(dim=1)
        return self.head(self.norm(pooled))

    def features(self, images_BCHW: Tensor, only: Collection[str] | None = None) -> Features:
        return self.encoder.features(images_BCHW, only)

    @property
    def shortcut_record(self) -> dict[str, Any]:
        return self.encoder.shortcut_record

    def layer_of(self, name: str) -> int:
        """For layer-wise learning rates: 0 for the embeddings, l for block l, depth + 1 for what follows."""
        parts = name.split(".")
        if parts[:2] == ["encoder", "blocks"]:
            return int(parts[2]) + 1
        return 0 if parts[0] == "encoder" and parts[1] != "norm" else self.config.encoder.depth + 1


class DropPath:
    """Multiplies each branch by its factor as it passes (arXiv:1603.09382): 0, or 1 / (1 - rate)."""

    def __init__(self, keep_BS: Tensor) -> None:
        self.keep_BS, self.branch = keep_BS, 0

    def note(self, name: str, value: Tensor) -> Tensor:
        if name.endswith(("/attn", "/mlp")):
            value = value * self.keep_BS[:, self.branch, None, None].to(value.dtype)
            self.branch += 1
        return value
