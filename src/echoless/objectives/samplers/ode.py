"""How is the probability-flow ODE solved in given steps? Euler, Heun, DDIM, and Heun with Karras' parametrisation.

Every sampler is a function (field, x, times, ...) -> x at the last time. The name of the argument says what the field
predicts; `predictions.translate` converts it from what the network predicts. Times run from noise to data.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.objectives.paths import Path
from echoless.objectives.predictions import Field
from echoless.objectives.samplers.noise import NoiseSource


# Section 2.1 of arXiv:2401.08740: dx = v(x, t) dt, first order.
@torch.no_grad()
def euler(velocity: Field, x: Tensor, times: Tensor) -> Tensor:
    """Euler's method: one evaluation a step."""
    for now, then in pairwise(times):
        x = x + (then - now) * velocity(x, now)
    return x


# The same ODE, second order.
@torch.no_grad()
def heun(velocity: Field, x: Tensor, times: Tensor) -> Tensor:
    """Heun's method, the trapezoid with an Euler step for its far end: two evaluations a step."""
    for now, then in pairwise(times):
        size, slope = then - now, velocity(x, now)
        x = x + size / 2 * (slope + velocity(x + size * slope, then))
    return x


# Eq. (12) and (16) of arXiv:2010.02502, for any path.
@torch.no_grad()
def ddim(
    predict_noise: Field, x: Tensor, times: Tensor, path: Path, eta: float = 0.0, noise: NoiseSource | None = None
) -> Tensor:
    """Keep the predicted data and noise, change their weights; with eta, `eta` of a DDPM step's noise is fresh."""
    if eta > 0 and noise is None:
        raise ConfigError(f"eta is {eta:g}, which needs a source of noise; allowed without one: 0")
    for now, then in pairwise(times):
        here, there = path.at(now), path.at(then)
        predicted = predict_noise(x, now)
        data = (x - here.s * predicted) / here.a
        if noise is None or eta == 0:
            x = there.a * data + there.s * predicted
        else:
            fresh = eta * there.s * torch.sqrt(-torch.expm1(2 * (path.log_snr(now) - path.log_snr(then))))
            kept = torch.sqrt(there.s.square() - fresh.square())
            x = there.a * data + kept * predicted + fresh * noise()
    return x


# Algorithm 1 of arXiv:2206.00364 without churn: y = x / a and sigma = s / a, where dy / dsigma = noise.
@torch.no_grad()
def heun_karras(predict_noise: Field, x: Tensor, times: Tensor, path: Path) -> Tensor:
    """Heun's method in sigma: two evaluations a step, one in a step that ends in the data."""
    points = [path.at(t) for t in times]
    y = x / points[0].a
    for index, (here, there) in enumerate(pairwise(points)):
        size = there.s / there.a - here.s / here.a
        slope = predict_noise(here.a * y, times[index])
        ahead = y + size * slope
        if there.s > 0:
            ahead = y + size / 2 * (slope + predict_noise(there.a * ahead, times[index + 1]))
        y = ahead
    return points[-1].a * y
