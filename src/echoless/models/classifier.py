"""How does an encoder become a classifier? A pooled feature, a norm, a linear head. (Legend: models/layers.py.)"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from echoless.config.supervised import ClassifierConfig
from echoless.models.body import EncoderModel
from echoless.models.features import pool
from echoless.models.layers import linear
from echoless.models.resnet import ResNet
from echoless.models.vit import ViT

ENCODERS: dict[str, Any] = {"vit": ViT, "resnet": ResNet}


class Classifier(EncoderModel):
    """`classifier(images)` gives logits (B, classes)."""

    encoder: ViT | ResNet

    def __init__(self, config: ClassifierConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = ENCODERS[config.encoder.kind](config.encoder, generator)
        self.norm = self.encoder.head_norm()
        self.head = linear(config.encoder.feature_width, config.classes)
        # Small, so that the first gradients are those of the features and not of a random head (He et al. 2022).
        nn.init.trunc_normal_(self.head.weight, std=2e-5, generator=generator)
        nn.init.zeros_(self.head.bias)

    def forward(self, images_BCHW: Tensor, drop_path_BS: Tensor | None = None) -> Tensor:
        """drop_path_BS: the drop-path factor of each of the S branches, for each sample."""
        encoder, tokens_BTD = self.config.encoder, self.encoder(images_BCHW, drop_path_BS=drop_path_BS)
        pooled_BD = pool(
            tokens_BTD, self.config.pooling, extra_tokens=encoder.extra_tokens, class_token=encoder.has_class_token
        )
        return self.head(self.norm(pooled_BD))

    def layer_of(self, name: str) -> int:
        """For layer-wise learning rates: 0 for the embeddings, l for block l, blocks + 1 for what follows."""
        parts = name.split(".")
        if parts[:2] == ["encoder", "blocks"]:
            return int(parts[2]) + 1
        return 0 if parts[0] == "encoder" and parts[1] != "norm" else self.config.encoder.blocks + 1
