"""How do DPM-Solver and DPM-Solver++ sample in few steps? The linear part of the ODE exactly, the rest by Taylor.

Both papers solve one equation. With noise prediction, x / a moves by -integral of e^(-l) noise dl over l = log(a / s);
with data prediction x / s moves by the integral of e^l data dl. Exchange a with s and l with -l and the second is the
first. So let `keep` and `add` be (a, s) for noise or (s, a) for data, and the clock log(keep / add). Every step is then

    x <- keep'/keep x - add' [ (e^h - 1) f + phi_2(h) f' + phi_3(h) f'' ],     h = the clock's advance,

where f is the prediction and f', f'' estimates of h and h^2 times its derivatives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.objectives.paths import Path
from echoless.objectives.predictions import Field

Predicts = Literal["noise", "data"]


class _Node(NamedTuple):
    """One time, as the integrator sees it."""

    t: Tensor
    keep: Tensor
    add: Tensor
    clock: Tensor


def _nodes(path: Path, times: Tensor, predicts: Predicts) -> list[_Node]:
    nodes = []
    for t in times:
        at, clock = path.at(t), path.log_snr(t)
        nodes.append(_Node(t, at.a, at.s, clock) if predicts == "noise" else _Node(t, at.s, at.a, -clock))
    return nodes


# Eq. (3.4) of arXiv:2206.00927 and proposition 4.1 of arXiv:2211.01095.
def _advance(x: Tensor, here: _Node, there: _Node, f: Tensor, *higher: tuple[Tensor, Tensor]) -> Tensor:
    """The exact step for constant f, and (coefficient, difference) pairs that refine it."""
    total = torch.expm1(there.clock - here.clock) * f
    for coefficient, difference in higher:
        total = total + coefficient * difference
    return there.keep / here.keep * x - there.add * total


def _phi2(h: Tensor) -> Tensor:
    return torch.expm1(h) / h - 1


def _phi3(h: Tensor) -> Tensor:
    return _phi2(h) / h - 0.5


# Algorithm 2 of arXiv:2211.01095 (order 2), and its third-order form in the authors' code.
@torch.no_grad()
def dpm_solver_multistep(
    predict: Field, x: Tensor, times: Tensor, path: Path, *, order: int = 2, predicts: Predicts = "data"
) -> Tensor:
    """DPM-Solver++ (2M), or (3M) with order 3: one evaluation a step, derivatives from the steps before.

    The first steps have a lower order, because there are no earlier steps; so has a step that ends at the data.
    """
    _require_order(order)
    nodes, past = _nodes(path, times, predicts), list[Tensor]()
    for index in range(len(nodes) - 1):
        past.append(predict(x, nodes[index].t))
        steps = nodes[max(0, index - order + 1) : index + 2]
        if not bool(steps[-1].clock.isfinite()):
            steps = steps[-2:]
        x = _multistep(x, steps, past)
        past = past[-order:]
    return x


def _multistep(x: Tensor, nodes: Sequence[_Node], past: Sequence[Tensor]) -> Tensor:
    """A step from the last node but one to the last, with as high an order as there are nodes behind it."""
    here, there, f = nodes[-2], nodes[-1], past[-1]
    h = there.clock - here.clock
    if len(nodes) == 2:
        return _advance(x, here, there, f)
    before = nodes[-3]
    ratio = (here.clock - before.clock) / h
    slope = (f - past[-2]) / ratio
    if len(nodes) == 3:
        return _advance(x, here, there, f, (torch.expm1(h) / 2, slope))
    earlier = (before.clock - nodes[-4].clock) / h
    slope_before = (past[-2] - past[-3]) / earlier
    bend = (slope - slope_before) / (ratio + earlier)  # half of f'': the released code takes it for the whole
    return _advance(x, here, there, f, (_phi2(h), slope + ratio * bend), (_phi3(h), 2 * bend))


# Algorithms 1 and 2 of arXiv:2206.00927 (noise); algorithm 1 of arXiv:2211.01095 and its third-order form (data).
@torch.no_grad()
def dpm_solver_singlestep(
    predict: Field, x: Tensor, times: Tensor, path: Path, orders: Sequence[int], *, predicts: Predicts = "data"
) -> Tensor:
    """Steps of the given orders, each over as many consecutive times as its order: one evaluation a time.

    U-ViT-L: predicts="noise" with `fast_times` and `fast_orders`; U-ViT-H: predicts="data" with `uniform_times`.
    """
    if sum(orders) != len(times) - 1:
        raise ConfigError(
            f"the orders add up to {sum(orders)}; allowed: {len(times) - 1}, one less than there are times"
        )
    nodes = _nodes(path, times, predicts)
    first = 0
    for order in orders:
        _require_order(order)
        x = _singlestep(predict, x, nodes[first : first + order + 1])
        first += order
    return x


def _singlestep(predict: Field, x: Tensor, nodes: Sequence[_Node]) -> Tensor:
    """From the first node to the last, with evaluations at all but the last."""
    here, there = nodes[0], nodes[-1]
    h, f = there.clock - here.clock, predict(x, here.t)
    if len(nodes) == 2:
        return _advance(x, here, there, f)
    ratio = (nodes[1].clock - here.clock) / h
    difference = predict(_advance(x, here, nodes[1], f), nodes[1].t) - f
    if len(nodes) == 3:
        return _advance(x, here, there, f, (torch.expm1(h) / (2 * ratio), difference))
    further = (nodes[2].clock - here.clock) / h
    second = _advance(x, here, nodes[2], f, (further / ratio * _phi2(further * h), difference))
    return _advance(x, here, there, f, (_phi2(h) / further, predict(second, nodes[2].t) - f))


def _require_order(order: int) -> None:
    if order not in (1, 2, 3):
        raise ConfigError(f"order is {order!r}; allowed: 1, 2, 3")
