"""How are predictions of noise, data, velocity and score converted into one another?

At one time of a path, x = a * data + s * noise and v = a' * data + s' * noise: two equations in two unknowns, so any
one prediction and x give all the others. No division by zero is introduced: a velocity can be converted to a score
where a = 0, and to noise where s = 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.objectives.paths import Path, Point

Prediction = Literal["velocity", "noise", "score", "data"]
PREDICTIONS: tuple[str, ...] = get_args(Prediction)

# (x, t) -> a prediction of x's shape; t is a float64 tensor, 0-d or, where samples have their own times, (B, 1, ...).
Field = Callable[[Tensor, Tensor], Tensor]


# Eq. (4) of arXiv:2006.11239 and section 2.2 of arXiv:2401.08740, solved for the noise; score = -noise / s.
def to_noise(value: Tensor, x: Tensor, at: Point, given: Prediction) -> Tensor:
    """The expected noise in x."""
    if given == "noise":
        return value
    if given == "score":
        return -at.s * value
    if given == "data":
        return (x - at.a * value) / at.s
    if given == "velocity":
        return (at.da * x - at.a * value) / (at.da * at.s - at.a * at.ds)
    raise ConfigError(f"prediction is {given!r}; allowed: {', '.join(PREDICTIONS)}")


# The same equations, solved for the data (Tweedie's formula where the score is given).
def to_data(value: Tensor, x: Tensor, at: Point, given: Prediction) -> Tensor:
    """The expected data in x."""
    if given == "data":
        return value
    if given == "velocity":
        return (at.s * value - at.ds * x) / (at.da * at.s - at.a * at.ds)
    return (x - at.s * to_noise(value, x, at, given)) / at.a


# Section 2.2 of arXiv:2401.08740: v = a' E[data | x] + s' E[noise | x]. Also Eq. (13) of arXiv:2011.13456.
def to_velocity(value: Tensor, x: Tensor, at: Point, given: Prediction) -> Tensor:
    """The velocity of the probability flow at x."""
    if given == "velocity":
        return value
    return at.velocity(to_data(value, x, at, given), to_noise(value, x, at, given))


# Section 2.2 of arXiv:2401.08740: score = -E[noise | x] / s.
def to_score(value: Tensor, x: Tensor, at: Point, given: Prediction) -> Tensor:
    """The gradient of the log density of x_t."""
    return value if given == "score" else -to_noise(value, x, at, given) / at.s


# The four above, by name.
def convert(value: Tensor, x: Tensor, at: Point, given: Prediction, wanted: Prediction) -> Tensor:
    """A prediction of one kind as one of another."""
    converters = {"velocity": to_velocity, "noise": to_noise, "score": to_score, "data": to_data}
    if wanted not in converters:
        raise ConfigError(f"prediction is {wanted!r}; allowed: {', '.join(PREDICTIONS)}")
    return converters[wanted](value, x, at, given)


# The same for a function of (x, t), which is what a sampler takes.
def translate(field: Field, path: Path, given: Prediction, wanted: Prediction) -> Field:
    """A field that predicts `given` as one that predicts `wanted`."""

    def translated(x: Tensor, t: Tensor) -> Tensor:
        return convert(field(x, t), x, path.at(t), given, wanted)

    return field if given == wanted else translated


# Section 3.2 of arXiv:2006.11239 in its authors' code: the expected data, clipped to where data can be.
def keep_within(field: Field, path: Path, given: Prediction, low: Tensor, high: Tensor) -> Field:
    """The same field with the predicted data clipped to the bounds (which broadcast to x).

    Near pure noise a is small, and an error of the predicted noise becomes an error of the data that is 1 / a times as
    large. Without clipping, the sampler does not recover from it. Only for paths with noise everywhere, because it
    divides by s.
    """

    def kept(x: Tensor, t: Tensor) -> Tensor:
        at = path.at(t)
        data = to_data(field(x, t), x, at, given).clamp(low, high)
        return convert(data, x, at, "data", given)

    return kept


# A network as a field: `network_time` is the objective's, for example t -> 999 t.
def field_of(
    model: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    network_time: Callable[[Tensor], Tensor],
    labels_B: Tensor | None = None,
) -> Field:
    """What the network predicts for these labels (None: no label)."""

    def field(x: Tensor, t: Tensor) -> Tensor:
        return model(x, expand_time(network_time(t), x), labels_B)

    return field


def expand_time(time: Tensor, x: Tensor) -> Tensor:
    """The time of every sample, in float32 as in training: one for all, or one each."""
    return time.to(device=x.device, dtype=torch.float32).reshape(-1).expand(len(x))
