"""How is an image noised for a diffusion model? To a given noise level, with the matching time."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from echoless.config import DiffusionConfig, FlowConfig
from echoless.objectives.diffusion import DiffusionObjective
from echoless.objectives.flow import FlowObjective
from echoless.objectives.noise_draws import per_sample


class Noised(NamedTuple):
    """What `Denoiser.features` and the denoiser itself are given."""

    images_BCHW: Tensor
    time_B: Tensor


def denoising_objective(
    config: DiffusionConfig | FlowConfig, shape: tuple[int, int, int], classes: int | None = None
) -> DiffusionObjective | FlowObjective:
    """The objective that a config names."""
    if isinstance(config, DiffusionConfig):
        return DiffusionObjective(config, shape, classes)
    return FlowObjective(config, shape, classes)


def noised(
    objective: DiffusionObjective | FlowObjective, images_BCHW: Tensor, level: float, noise_BCHW: Tensor
) -> Noised:
    """`level` counts the path's time from the data: 0 is the image, 1 is noise, whichever way the path runs."""
    uniform = level if isinstance(objective, DiffusionObjective) else 1.0 - level
    time_B = objective.training_time(torch.full((len(images_BCHW),), uniform, device=images_BCHW.device))
    mixed = objective.path.at(per_sample(time_B, images_BCHW)).mix(images_BCHW, noise_BCHW)
    return Noised(mixed, objective.network_time(time_B))
