"""What does MoCo v3 minimise? InfoNCE: classify the other view of an image among those of the whole batch.

The denominator repels all other images of the batch, which raises the rank of the features; fading lowers it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config.selfsupervised import InfoNCEConfig
from echoless.models.global_batch import all_rows
from echoless.models.moco import MoCo
from echoless.objectives.objective import Draws


# Eq. (1), arXiv:2104.02057, times 2 * temperature as in algorithm 1 there.
def info_nce(queries_BD: Tensor, keys_ND: Tensor, first: int, temperature: float) -> Tensor:
    """The positive of query i is key first + i; returns the mean over the queries."""
    logits_BN = F.normalize(queries_BD.float(), dim=1) @ F.normalize(keys_ND.float(), dim=1).T / temperature
    own_B = first + torch.arange(len(queries_BD), device=queries_BD.device)
    return 2 * temperature * F.cross_entropy(logits_BN, own_B)


# Section 4.1 of arXiv:2104.02057, after arXiv:2006.07733.
def rising_momentum(start: float, progress: float) -> float:
    """Momentum that rises from `start` to 1 along half a cosine."""
    return 1 - (1 - start) * (1 + math.cos(math.pi * progress)) / 2


class InfoNCEObjective:
    """Both views as query and as key, in turn. Nothing is drawn here: views come from the data."""

    def __init__(self, config: InfoNCEConfig, steps: int) -> None:
        self.config, self.steps = config, steps

    def draw(self, batch_size: int, seed: int, step: int) -> Draws:
        return {}

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        (query, other_query), (key, other_key) = model([images_BCHW, draws["view01"]])
        loss = images_BCHW.new_zeros(())
        for asked, answer in ((query, other_key), (other_query, key)):
            keys_ND, first = all_rows(answer)
            loss = loss + info_nce(asked, keys_ND, first, self.config.temperature)
        return loss

    def before_update(self, model: nn.Module, step: int) -> None:
        pass

    def after_update(self, model: nn.Module, step: int) -> None:
        assert isinstance(model, MoCo)
        model.follow(rising_momentum(self.config.momentum, step / self.steps))
