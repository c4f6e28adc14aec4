"""Which weights must be zero for a residual branch to start at zero?"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from echoless.shortcuts.find import FoundShortcut, is_elementary
from echoless.shortcuts.trace import Node, Tracer


def zero_last_layers(
    model: nn.Module, tracer: Tracer, shortcuts: Sequence[FoundShortcut]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Zeroes the last linear or convolution of every branch; returns the parameters zeroed, and the failures."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    zeroed: list[str] = []
    failed: list[str] = []
    for shortcut in shortcuts:
        weights = last_weights(shortcut)
        where = shortcut.addition.module or "the model"
        if not weights:
            failed.append(f"{where}: its last layer was not found")
        elif any(tracer.uses[id(weight)] > 1 for weight in weights):
            failed.append(f"{where}: its last layer is used more than once")
        else:
            with torch.no_grad():
                for weight in weights:
                    weight.zero_()
            zeroed += [names[id(weight)] for weight in weights]
    return tuple(zeroed), tuple(failed)


def last_weights(shortcut: FoundShortcut) -> tuple[nn.Parameter, ...]:
    """Weights of the last layer before the branch's output, ignoring gates, norms and dropout after it."""
    node = shortcut.branch
    while is_elementary(node.name):
        from_stream = [p for p in dict.fromkeys(node.parents) if p.comes_from(shortcut.stream)]
        if len(from_stream) != 1:
            return ()
        node = from_stream[0]
    return _output_weights(node)


def _output_weights(node: Node) -> tuple[nn.Parameter, ...]:
    matrices = [i for i, weight in enumerate(node.weights) if weight.ndim >= 2]
    if node.name == "multi_head_attention_forward":
        # One function takes the weights of the input and of the output projection, in this order.
        return node.weights[matrices[1] :] if len(matrices) == 2 else ()
    return node.weights if len(matrices) == 1 else ()
