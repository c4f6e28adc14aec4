"""What does an interpolant model minimise? The squared error of a velocity, noise or score. (Legend: layers.py.)"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from echoless.config import FlowConfig
from echoless.objectives.noise_draws import draw_noising, hide_labels, per_sample
from echoless.objectives.objective import Draws
from echoless.objectives.paths import Point, interpolant_path
from echoless.objectives.predictions import Prediction


class TimeInterval(NamedTuple):
    """The part of [0, 1], noise to data, that is trained on or sampled over."""

    start: float
    end: float


# As in the code of arXiv:2401.08740: what keeps every division away from zero.
def training_interval(config: FlowConfig) -> TimeInterval:
    """All of [0, 1] where the velocity is finite everywhere; a shorter interval elsewhere."""
    if config.interpolant == "vp":
        return TimeInterval(0.0, 1.0 - 1e-5)
    return TimeInterval(0.0, 1.0) if config.prediction == "velocity" else TimeInterval(1e-3, 1.0 - 1e-3)


# The same for sampling.
def sampling_interval(config: FlowConfig) -> TimeInterval:
    """The interval of ODE samplers; an SDE ends earlier, where its last step begins."""
    if config.interpolant == "vp":
        return TimeInterval(0.0, 1.0 - 1e-3)
    return training_interval(config)


# Section 2.2 of arXiv:2401.08740; the weightings as in its code.
class FlowObjective:
    """Velocity, noise or score along a stochastic interpolant; the network is given the path's own time."""

    prediction: Prediction

    def __init__(self, config: FlowConfig, shape: tuple[int, int, int], classes: int | None = None) -> None:
        self.config, self.shape, self.classes = config, shape, classes
        self.prediction = config.prediction
        self.path = interpolant_path(config.interpolant)

    def draw(self, batch_size: int, seed: int, step: int) -> Draws:
        return draw_noising(batch_size, self.shape, seed, step)

    def loss(self, model: nn.Module, images_BCHW: Tensor, labels_B: Tensor | None, draws: Draws) -> Tensor:
        time_B, noise = self.training_time(draws["time"]), draws["noise"]
        labels_B = hide_labels(labels_B, draws, self.classes, self.config.label_dropout)
        at = self.path.at(per_sample(time_B, images_BCHW))
        predicted = model(at.mix(images_BCHW, noise), self.network_time(time_B), labels_B).float()
        return (self.weight(at) * self.error(predicted, images_BCHW, noise, at).square()).mean()

    def error(self, predicted: Tensor, images_BCHW: Tensor, noise: Tensor, at: Point) -> Tensor:
        """The error that is squared. A score is multiplied by s first, so that its target is -noise."""
        if self.prediction == "velocity":
            return predicted - at.velocity(images_BCHW, noise)
        return predicted - noise if self.prediction == "noise" else predicted * at.s + noise

    def weight(self, at: Point) -> Tensor | float:
        """Turns the noise error into that of the velocity, or into a bound on the likelihood."""
        if self.config.weighting == "none":
            return 1.0
        return (at.spread / at.s).square() if self.config.weighting == "velocity" else at.spread / at.s.square()

    def training_time(self, uniform_B: Tensor) -> Tensor:
        """The path's time for a number in [0, 1)."""
        start, end = training_interval(self.config)
        return start + (end - start) * uniform_B

    def network_time(self, t: Tensor) -> Tensor:
        """The time as the network takes it."""
        return t
