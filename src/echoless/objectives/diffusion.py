"""What does a diffusion model minimise? The squared error of the noise it predicts. (Legend: models/layers.py.)"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config import DiffusionConfig
from echoless.objectives.noise_draws import draw_noising, hide_labels, per_sample
from echoless.objectives.objective import Draws
from echoless.objectives.paths import Discrete, diffusion_path
from echoless.objectives.predictions import Prediction

VP_TIME_SCALE = 999  # the network's time runs to 999, as that of discrete models does (arXiv:2011.13456, its code)


# Eq. (14) of arXiv:2006.11239; section 2 of arXiv:2209.12152.
class DiffusionObjective:
    """Noise prediction with time uniform: on [0, 1] under the VP SDE, on 1 .. N under a discrete schedule."""

    prediction: Prediction = "noise"

    def __init__(self, config: DiffusionConfig, shape: tuple[int, int, int], classes: int | None = None) -> None:
        self.config, self.shape, self.classes = config, shape, classes
        self.path = diffusion_path(config.schedule)

    def draw(self, batch_size: int, seed: int, step: int) -> Draws:
        return draw_noising(batch_size, self.shape, seed, step)

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        time_B, noise = self.training_time(draws["time"]), draws["noise"]
        labels_B = hide_labels(labels_B, draws, self.classes, self.config.label_dropout)
        noisy = self.path.at(per_sample(time_B, images_BCHW)).mix(images_BCHW, noise)
        predicted = model(noisy, self.network_time(time_B), labels_B)
        return F.mse_loss(predicted.float(), noise)

    def training_time(self, uniform_B: Tensor) -> Tensor:
        """The path's time for a number in [0, 1)."""
        if isinstance(self.path, Discrete):
            return (torch.floor(uniform_B * self.path.steps) + 1) / self.path.steps
        return uniform_B

    def network_time(self, t: Tensor) -> Tensor:
        """The time as the network takes it."""
        if isinstance(self.path, Discrete):
            return t * self.path.steps - (1 - self.config.first_step)
        return t * VP_TIME_SCALE
