"""How are two views of an image compared? An encoder with projector and predictor, and its slower copy (MoCo-v3).

The copy, a moving average that no gradient reaches, makes the keys; it is state, and part of every checkpoint. What a
run leaves behind is the encoder that is trained. (Legend: models/layers.py.)
"""

from __future__ import annotations

import copy
from collections.abc import Collection
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from echoless.config import ViTConfig
from echoless.config.selfsupervised import MoCoConfig
from echoless.models.features import Features
from echoless.models.global_batch import BatchNorm
from echoless.models.layers import initialise, linear
from echoless.models.vit import ViT
from echoless.shortcuts import init_skipless_

SKIPLESS_START = (1.8, 1.0, 3.0)  # mixing and identity of queries and keys, scale of values: ViT-S by DINO


class Pairs(NamedTuple):
    """For each view, in order: queries with gradient, keys without."""

    queries: list[Tensor]  # (B, output) each
    keys: list[Tensor]


# Section 3 and appendix A of arXiv:2104.02057: three layers in the projector, two in the predictor.
class MoCo(nn.Module):
    """`moco([view, other])` gives the queries and keys of both."""

    def __init__(self, config: MoCoConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        width, hidden, output = config.encoder.width, config.hidden, config.output
        self.encoder = fresh_encoder(config.encoder, generator)
        self.projector = mlp([width, hidden, hidden, output], last_norm=True)
        self.predictor = mlp([output, hidden, output], last_norm=False)
        for head in (self.projector, self.predictor):
            initialise(head, zero_branches=False, generator=generator)
        self.slow_encoder = frozen_copy(self.encoder)
        self.slow_projector = frozen_copy(self.projector)

    def forward(self, views: list[Tensor]) -> Pairs:
        # Through the encoder together, through the heads one by one: their batch statistics are those of a view.
        images = torch.cat(views)
        tokens = self.encoder(images)[:, 0].chunk(len(views))
        queries = [self.predictor(self.projector(token)) for token in tokens]
        with torch.no_grad():
            slow = self.slow_encoder(images)[:, 0].chunk(len(views))
            keys = [self.slow_projector(token) for token in slow]
        return Pairs(queries, keys)

    def follow(self, momentum: float) -> None:
        """The copy moves towards the encoder."""
        follow(self.slow_encoder, self.encoder, momentum)
        follow(self.slow_projector, self.projector, momentum)

    def share_encoder(self) -> None:
        """After other weights were loaded into `encoder`: the copy starts from them too."""
        follow(self.slow_encoder, self.encoder, momentum=0.0)

    def features(self, images_BCHW: Tensor, only: Collection[str] | None = None) -> Features:
        return self.encoder.features(images_BCHW, only)

    @property
    def shortcut_record(self) -> dict[str, Any]:
        return self.encoder.shortcut_record


def fresh_encoder(config: ViTConfig, generator: torch.Generator | None) -> ViT:
    """A ViT at its start; one without any shortcut starts as arXiv:2510.00345 has it for DINO, or would not learn."""
    encoder = ViT(config, generator)
    if config.init_scheme == "skipless":
        init_skipless_(encoder, *config.init_constants, generator=generator)
    elif config.shortcuts.variant == "none":
        init_skipless_(encoder, *SKIPLESS_START, generator=generator)
    return encoder


def mlp(widths: list[int], *, last_norm: bool) -> nn.Sequential:
    """Linears without bias, each followed by batch norm, and by ReLU between them; the last norm has no weights."""
    layers: list[nn.Module] = []
    for number, (inputs, outputs) in enumerate(pairwise(widths), start=2):
        layers.append(linear(inputs, outputs, bias=False))
        if number < len(widths):
            layers += [BatchNorm(outputs), nn.ReLU()]
        elif last_norm:
            layers.append(BatchNorm(outputs, affine=False))
    return nn.Sequential(*layers)


def frozen_copy(module: nn.Module) -> Any:
    """The same weights, which no gradient will reach."""
    return copy.deepcopy(module).requires_grad_(False)


@torch.no_grad()
def follow(slow: nn.Module, fast: nn.Module, momentum: float) -> None:
    """slow <- momentum * slow + (1 - momentum) * fast, for every parameter."""
    for mine, theirs in zip(slow.parameters(), fast.parameters()):
        mine.lerp_(theirs, 1 - momentum)
