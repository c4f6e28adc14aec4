"""How is a smooth convex function minimised? By L-BFGS in a metric: a first guess H of the inverse Hessian.

Algorithm 7.5 of Nocedal & Wright (Numerical Optimization, 2006). It steps along -H g, with the gradient g, where H is
corrected by what the gradient did along the latest steps. `torch.optim.LBFGS` knows no metric, and the first use of
any optimiser of torch imports its compiler, which takes longer than a fit.

Shapes: the variable is C x E. The metric is root root^T, with a root (E, E) for all of its rows or (C, E, E) for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

Function = Callable[[Tensor], tuple[float, Tensor]]  # x -> value and gradient
MEMORY = 20  # pairs of a step and the change of the gradient along it
SUFFICIENT = 1e-4  # share of the decrease that the slope promises
SHORTEST = 1e-10  # part of a step
UNCHANGED = 1e-9  # a difference of values that may be rounding


def minimise(function: Function, start_CE: Tensor, root: Tensor, *, tolerance: float, most: int) -> Tensor:
    """Where no entry of gradient * root is above the tolerance, or `most` steps later, or where no step goes down."""
    pairs: deque[tuple[Tensor, Tensor]] = deque(maxlen=MEMORY)
    x_CE, (value, gradient_CE) = start_CE, function(start_CE)
    for _ in range(most):
        if float(_times(gradient_CE, root).abs().max()) <= tolerance:
            break
        step_CE = _quasi_newton_step(gradient_CE, pairs, root)
        slope = _dot(gradient_CE, step_CE)
        new_value, new_gradient_CE = function(x_CE + step_CE)
        length = 1.0
        while new_value > value + SUFFICIENT * length * slope + UNCHANGED and length > SHORTEST:
            # To the minimum of the parabola through both values with this slope, if that is not too near to an end.
            length *= min(0.5, max(0.1, -slope * length / (2 * (new_value - value - slope * length))))
            new_value, new_gradient_CE = function(x_CE + length * step_CE)
        step_CE, change_CE, fallen = length * step_CE, new_gradient_CE - gradient_CE, value - new_value
        if _dot(step_CE, change_CE) > 0:  # always, but for rounding: the function is convex
            pairs.append((step_CE, change_CE))
        x_CE, value, gradient_CE = x_CE + step_CE, new_value, new_gradient_CE
        if abs(fallen) < UNCHANGED:
            break
    return x_CE


# Algorithm 7.4 of Nocedal & Wright, the two loops.
def _quasi_newton_step(gradient_CE: Tensor, pairs: deque[tuple[Tensor, Tensor]], root: Tensor) -> Tensor:
    step_CE, shares = -gradient_CE, list[float]()
    for step, change in reversed(pairs):
        shares.append(_dot(step, step_CE) / _dot(step, change))
        step_CE = step_CE.sub(change, alpha=shares[-1])
    step_CE = _times(_times(step_CE, root), root.mT)
    if pairs:  # the length by which the latest step says that the metric is wrong
        step, change = pairs[-1]
        step_CE *= _dot(step, change) / float(_times(change, root).square().sum())
    for step, change in pairs:
        step_CE = step_CE + (shares.pop() - _dot(change, step_CE) / _dot(step, change)) * step
    return step_CE


def _times(x_CE: Tensor, root: Tensor) -> Tensor:
    return x_CE @ root if root.ndim == 2 else torch.bmm(x_CE.unsqueeze(1), root).squeeze(1)


def _dot(a: Tensor, b: Tensor) -> float:
    return float(torch.dot(a.flatten(), b.flatten()))
