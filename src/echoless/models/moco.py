"""What is the network of MoCo v3 (arXiv:2104.02057)? An encoder with projector and predictor, and a momentum encoder.

The momentum encoder and its projector make the keys; they are part of every checkpoint. `RUN/encoder` is the encoder
that is trained. (Legend: models/layers.py.)
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from echoless.config.selfsupervised import MoCoConfig
from echoless.models.body import EncoderModel
from echoless.models.global_batch import BatchNorm
from echoless.models.layers import initialise, linear
from echoless.models.momentum import follow, frozen_copy
from echoless.models.vit import ViT


class Pairs(NamedTuple):
    """For each view, in order: queries with gradient, keys without."""

    queries: list[Tensor]  # (B, output) each
    keys: list[Tensor]


# Section 3 and appendix A of arXiv:2104.02057: three layers in the projector, two in the predictor.
class MoCo(EncoderModel):
    """`moco([view, other])` gives the queries and keys of both."""

    encoder: ViT

    def __init__(self, config: MoCoConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        width, hidden, output = config.encoder.width, config.hidden, config.output
        self.encoder = ViT(config.encoder, generator)
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
        """EMA update of the momentum encoder and its projector."""
        follow(self.slow_encoder, self.encoder, momentum)
        follow(self.slow_projector, self.projector, momentum)

    def share_encoder(self) -> None:
        follow(self.slow_encoder, self.encoder, momentum=0.0)


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
