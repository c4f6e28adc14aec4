"""How is a linear layer trained? As torch's, with products by the library that is faster here (products.py)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import forward_ad

from echoless.products import matrix_product, onednn_is_faster


class Dense(nn.Linear):
    """y = x W^T + b."""

    def forward(self, x: Tensor) -> Tensor:
        return affine(x, self.weight, self.bias)


def affine(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + b, as F.linear."""
    if _ordinary(x, weight_OI) and onednn_is_faster(x, weight_OI, bias_O):
        return _Products.apply(x, weight_OI, bias_O)
    return F.linear(x, weight_OI, bias_O)


class _Products(torch.autograd.Function):
    """A linear layer whose gradients are linear layers, too: they can be differentiated again."""

    @staticmethod
    def forward(context: Any, x: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        of_x, of_weight, _ = context.needs_input_grad
        context.save_for_backward(x if of_weight else None, weight_OI if of_x else None)
        return matrix_product(x, weight_OI, bias_O)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        x, weight_OI = context.saved_tensors
        gradient_RO = gradient.reshape(-1, gradient.shape[-1])
        return (
            None if weight_OI is None else affine(gradient, weight_OI.T),
            None if x is None else _gradient_of_weight(gradient_RO, x.reshape(-1, x.shape[-1])),
            gradient_RO.sum(0) if context.needs_input_grad[2] else None,
        )


def _gradient_of_weight(gradient_RO: Tensor, x_RI: Tensor) -> Tensor:
    """(O, I). Of the two ways to compute it, the one with fewer rows is faster."""
    if gradient_RO.shape[1] <= x_RI.shape[1]:
        return affine(gradient_RO.T, x_RI.T)
    return affine(x_RI.T, gradient_RO.T).T


def _ordinary(x: Tensor, weight_OI: Tensor) -> bool:
    """Whether nobody observes, compiles, traces, transforms or casts this call: torch's own layer knows all of that."""
    return (
        not torch._C._is_torch_function_mode_enabled()  # `fade` counts how often a weight is used
        and type(x) is Tensor
        and type(weight_OI) in (Tensor, nn.Parameter)
        and not torch.compiler.is_compiling()
        and not torch.jit.is_tracing()
        and not torch.is_autocast_enabled("cpu")
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
    )
