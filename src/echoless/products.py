"""Which library multiplies matrices on a CPU? The one that uses all of the processor's vectors.

torch calls MKL for float32. On processors of AMD, MKL takes its AVX2 kernels also where the processor has AVX-512;
oneDNN, which torch contains as well, asks the processor itself and takes less than half of the time
(docs/performance.md). The choice follows from the processor and the shapes, never from a clock: equal runs on one
machine stay equal bits. No gradients: models/linear.py has them.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from echoless.runtime.machine import processor_vendor

# Below it, calling oneDNN takes longer than it saves.
_FEWEST_MULTIPLICATIONS = 2**21


def matrix_product(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """x W^T + b, for x (..., I); the values of the weight may lie row by row or column by column."""
    if onednn_is_faster(x, weight_OI):
        return torch.ops.mkldnn._linear_pointwise(x, _without_gaps(weight_OI), bias_O, "none", [], "")
    return torch.nn.functional.linear(x, weight_OI, bias_O)


def _without_gaps(matrix: Tensor) -> Tensor:
    """A part of a larger matrix is copied: oneDNN would multiply it value by value."""
    return matrix if matrix.is_contiguous() or matrix.T.is_contiguous() else matrix.contiguous()


def onednn_is_faster(x: Tensor, weight_OI: Tensor) -> bool:
    """For this product, on this processor."""
    return (
        _onednn_has_the_wider_vectors()
        and x.dtype == weight_OI.dtype == torch.float32
        and x.device.type == "cpu" == weight_OI.device.type
        and x.numel() * len(weight_OI) >= _FEWEST_MULTIPLICATIONS
    )


@cache
def _onednn_has_the_wider_vectors() -> bool:
    return (
        processor_vendor() == "AuthenticAMD"
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkldnn.is_available()
    )
