"""How is the probability-flow ODE solved with adaptive steps? Dormand and Prince's method, each sample at its own pace.

A batch is evaluated together and every sample has its own time and step size, so that a sample does not depend on its
neighbours. Step-size control is that of torchdiffeq with one sample, the solver of arXiv:2401.08740. A sample that has
arrived waits for the others, so a batch costs as many evaluations as its slowest sample.

Shapes: B samples; `_B` values are float64, one per sample.
"""

from __future__ import annotations

import torch
from torch import Tensor

from echoless.errors import RunError
from echoless.objectives.noise_draws import per_sample
from echoless.objectives.predictions import Field

# Table 2 of Dormand and Prince (1980): the times of the stages, the weights of the slopes before them, and the fifth
# order minus Shampine's fourth order, which estimates the error.
_TIMES = (1 / 5, 3 / 10, 4 / 5, 8 / 9, 1.0, 1.0)
_WEIGHTS = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_FOURTH = (1951 / 21600, 0.0, 22642 / 50085, 451 / 720, -12231 / 42400, 649 / 6300, 1 / 60)
_ERROR = tuple(fifth - fourth for fifth, fourth in zip((*_WEIGHTS[-1], 0.0), _FOURTH))

_SAFETY, _GROW, _SHRINK = 0.9, 10.0, 0.2
_SMALLEST = 1e-12  # a step of this size advances nothing: the field is not finite, or not smooth


# Dormand and Prince's fifth-order method, the ODE sampler of arXiv:2401.08740.
@torch.no_grad()
def dopri5(velocity: Field, x: Tensor, start: float, end: float, atol: float = 1e-6, rtol: float = 1e-3) -> Tensor:
    """x at `end`. `velocity` is given times of shape (B, 1, ...), one for each sample."""
    sign, span = (1.0 if end > start else -1.0), abs(end - start)

    def slope_at(x: Tensor, done_B: Tensor) -> Tensor:
        return sign * velocity(x, per_sample(start + sign * done_B, x)).to(x.dtype)

    done_B = torch.zeros(len(x), dtype=torch.float64, device=x.device)
    slope = slope_at(x, done_B)
    step_B = _first_step(slope_at, x, slope, atol, rtol)
    while bool((left_B := span - done_B).gt(0).any()):
        last_B = step_B >= left_B
        size_B = torch.where(last_B, left_B, step_B)
        ahead, slope_ahead, error = _stages(slope_at, x, slope, done_B, size_B)
        scale = atol + rtol * torch.maximum(x.abs(), ahead.abs())
        ratio_B = torch.where(left_B > 0, _norm(error / scale), 0.0)
        accepted_B = ratio_B <= 1
        x = torch.where(per_sample(accepted_B, x), ahead, x)
        slope = torch.where(per_sample(accepted_B, x), slope_ahead, slope)
        arrived_B = torch.where(last_B, span, done_B + size_B)  # not rounded
        done_B = torch.where(accepted_B, arrived_B, done_B)
        step_B = torch.where(left_B > 0, size_B * _growth(ratio_B), step_B)
        _require_progress(step_B, accepted_B)
    return x


def _stages(slope_at: Field, x: Tensor, slope: Tensor, done_B: Tensor, size_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """x one step ahead, the slope there, and the estimated error: six evaluations, the first slope being known."""
    size, slopes, there = per_sample(size_B, x).to(x.dtype), [slope], x
    for time, weights in zip(_TIMES, _WEIGHTS):
        there = x + size * _mix(weights, slopes)
        slopes.append(slope_at(there, done_B + time * size_B))
    return there, slopes[-1], size * _mix(_ERROR, slopes)


# Section II.4 of Hairer, Norsett and Wanner, Solving Ordinary Differential Equations I.
def _first_step(slope_at: Field, x: Tensor, slope: Tensor, atol: float, rtol: float) -> Tensor:
    """A step over which an explicit Euler step and its slope change little."""
    scale = atol + x.abs() * rtol
    size_B, speed_B = _norm(x / scale), _norm(slope / scale)
    tiny_B = (size_B < 1e-5) | (speed_B < 1e-5)
    trial_B = torch.where(tiny_B, 1e-6, 0.01 * size_B / speed_B)
    there = slope_at(x + per_sample(trial_B, x).to(x.dtype) * slope, trial_B)
    bend_B = _norm((there - slope) / scale) / trial_B
    fastest_B = torch.maximum(speed_B, bend_B)
    still_B = fastest_B <= 1e-15
    guess_B = torch.where(still_B, (trial_B * 1e-3).clamp(min=1e-6), (0.01 / fastest_B) ** (1 / 5))
    return torch.minimum(100 * trial_B, guess_B)


def _growth(ratio_B: Tensor) -> Tensor:
    """How much larger the next step may be: at most ten times, not smaller after a success, at least a fifth."""
    least_B = torch.where(ratio_B < 1, 1.0, _SHRINK)
    return torch.maximum(_SAFETY * ratio_B ** (-1 / 5), least_B).clamp(max=_GROW)


def _require_progress(step_B: Tensor, accepted_B: Tensor) -> None:
    """A step may be as small as what was left to the end; one that was rejected may not."""
    if not bool((accepted_B | (step_B > _SMALLEST)).all()):  # also where it is not a number
        raise RunError("dopri5 cannot make its step small enough; the model's predictions are not finite or not smooth")


def _mix(weights: tuple[float, ...], slopes: list[Tensor]) -> Tensor:
    total = weights[0] * slopes[0]
    for weight, slope in zip(weights[1:], slopes[1:]):
        total = total + weight * slope
    return total


def _norm(values: Tensor) -> Tensor:
    """Root mean square of each sample."""
    return values.flatten(1).double().square().mean(dim=1).sqrt()
