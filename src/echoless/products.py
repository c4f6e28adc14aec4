"""Which library multiplies matrices on a CPU? The one that uses all of the processor's vectors.

torch calls MKL for float32. On processors of AMD, MKL takes its AVX2 kernels also where the processor has AVX-512;
oneDNN, which torch contains as well, asks the processor itself and takes less than half of the time
(docs/performance.md). The choice follows from the processor and the shapes, never from a clock: equal runs on one
machine stay equal bits. No gradients: models/linear.py has them.
"""

from __future__ import annotations

from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.runtime.machine import processor_vendor

# Below it, calling oneDNN takes longer than it saves.
_FEWEST_MULTIPLICATIONS = 2**21


def matrix_product(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None, *, out: Tensor | None = None) -> Tensor:
    """x W^T + b, for x (..., I). `out`: memory for the result of two matrices, which MKL takes and oneDNN does not."""
    if onednn_is_faster(x, weight_OI, bias_O):
        bias_O = None if bias_O is None else bias_O.contiguous()  # its stride would be ignored
        return torch.ops.mkldnn._linear_pointwise(x, _without_gaps(weight_OI), bias_O, "none", [], "")
    return F.linear(x, weight_OI, bias_O) if out is None else torch.mm(x, weight_OI.T, out=out)


def _without_gaps(matrix: Tensor) -> Tensor:
    """A part of a larger matrix is copied: oneDNN would multiply it value by value."""
    return matrix if matrix.is_contiguous() or matrix.T.is_contiguous() else matrix.contiguous()


def onednn_is_faster(x: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> bool:
    """For this product, on this processor. Shapes that do not fit are left to torch, whose error names them."""
    return (
        _onednn_has_the_wider_vectors()
        and torch._C._get_mkldnn_enabled()  # unless the user has switched it off
        and x.dtype == weight_OI.dtype == torch.float32
        and x.device.type == "cpu" == weight_OI.device.type
        and x.shape[-1:] == weight_OI.shape[1:]
        and (bias_O is None or bias_O.shape == weight_OI.shape[:1])
        and x.numel() * len(weight_OI) >= _FEWEST_MULTIPLICATIONS
    )


@cache
def _onednn_has_the_wider_vectors() -> bool:
    return (
        processor_vendor() == "AuthenticAMD"
        and torch.backends.cpu.get_cpu_capability() == "AVX512"
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    )
