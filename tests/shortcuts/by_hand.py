"""Does a faded model compute what a forward written by hand computes?

A reference replaces the forward of a library's block by one that a test wrote, with `next(alpha)` wherever the stream
is multiplied; it uses nothing of `echoless`. The alphas come from numpy's linspace. Weights are redrawn so that every
branch contributes: layer scales of 1e-6 would hide errors.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from echoless.shortcuts import fade, unfade
from echoless.shortcuts.travel import BUFFER

Alphas = Iterator[float]
Reference = Callable[[nn.Module, Alphas], None]
ALPHA_MIN = 0.6


def replace_forwards(model: nn.Module, class_name: str, forward: Callable[..., Any]) -> None:
    for module in model.modules():
        if type(module).__name__ == class_name:
            module.forward = MethodType(forward, module)


def check_against_reference(
    name: str, make: Callable[[], tuple[nn.Module, Any]], reference: Reference, count: int
) -> None:
    """Fades the model that `make` returns and compares it with `reference`, in single and in double precision."""
    errors = {}
    for dtype, tolerance in ((torch.float32, 1e-5), (torch.float64, 1e-10)):
        torch.manual_seed(0)
        model, example = make()
        model, example = with_random_weights(model, dtype), in_dtype(example, dtype)
        keys = {key: value.shape for key, value in model.state_dict().items()}
        plain = output(model, example)
        by_hand = copy.deepcopy(model)

        report = fade(model, ALPHA_MIN, example=example)
        faded = output(model, example)
        assert {k: v.shape for k, v in model.state_dict().items() if k != BUFFER} == keys

        alpha = iter([float(a) for a in numpy.linspace(1, ALPHA_MIN, count)])
        reference(by_hand, alpha)
        expected = output(by_hand, example)
        assert next(alpha, None) is None, "the model has fewer shortcuts than this test states"
        assert len(report.shortcuts) == count

        errors[dtype] = relative_error(faded, expected)
        assert errors[dtype] < tolerance
        assert relative_error(plain, expected) > 1e-2  # otherwise the comparison could not fail
        unfade(model)
        assert torch.equal(output(model, example), plain)
    left = sum(other.count for other in report.left_alone)
    single, double = errors.values()
    print(f"\n{name}: {count} faded, {left} left alone, error {single:.1e} in float32, {double:.1e} in float64")


def with_random_weights(model: nn.Module, dtype: torch.dtype) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn_like(parameter)
            if parameter.ndim > 1:
                parameter.copy_(noise / math.sqrt(parameter[0].numel()))
            else:
                parameter.add_(0.5 * noise)
    return model.to(dtype).eval()


def in_dtype(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, dict):
        return {key: in_dtype(item, dtype) for key, item in value.items()}
    if isinstance(value, tuple):
        return tuple(in_dtype(item, dtype) for item in value)
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value


@torch.no_grad()
def output(model: nn.Module, example: Any) -> Tensor:
    """The output tensor, or the first of several."""
    if isinstance(example, dict):
        out = model(**example)
    else:
        out = model(*example) if isinstance(example, tuple) else model(example)
    return out if isinstance(out, Tensor) else out[0]


def relative_error(value: Tensor, expected: Tensor) -> float:
    return ((value - expected).abs().max() / expected.abs().max()).item()
