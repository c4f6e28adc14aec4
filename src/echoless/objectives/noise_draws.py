"""What is drawn for a training step of a diffusion model? Noise, time, and which labels are dropped."""

from __future__ import annotations

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.objectives.objective import Draws
from echoless.randomness import generator_for


# What Algorithm 1 of arXiv:2006.11239 and Algorithm 1 of arXiv:2207.12598 draw for each sample.
def draw_noising(batch_size: int, shape: tuple[int, ...], seed: int, step: int) -> Draws:
    """Noise, a time in [0, 1), and a number in [0, 1) that decides whether the label is dropped."""
    return {
        "noise": torch.randn(batch_size, *shape, generator=generator_for(seed, "noise", step)),
        "time": torch.rand(batch_size, generator=generator_for(seed, "time", step)),
        "label": torch.rand(batch_size, generator=generator_for(seed, "dropout", step)),
    }


# Algorithm 1 of arXiv:2207.12598: the label is discarded with a fixed probability.
def hide_labels(labels_B: Tensor | None, draws: Draws, classes: int | None, dropout: float) -> Tensor | None:
    """The labels the network is given: class `classes` is the null label, and so is any negative label."""
    if classes is None:
        return None
    if labels_B is None:
        raise ConfigError(f"the model has {classes} classes, but the data has no labels")
    return torch.where((draws["label"] < dropout) | (labels_B < 0), classes, labels_B)


def per_sample(values_B: Tensor, like: Tensor) -> Tensor:
    """(B,) as (B, 1, 1, ...), to multiply samples with."""
    return values_B.view(-1, *[1] * (like.ndim - 1))
