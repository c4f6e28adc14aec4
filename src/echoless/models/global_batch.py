"""How are statistics of a global batch computed by several processes? Sums, rows and batch norm over all of them.

With one process each function is the ordinary one, so losses that compare samples are written once.
Letters: B samples of this process, N of all, D width.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


def alone() -> bool:
    return not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1


def total(values: Tensor) -> Tensor:
    """The sum over the processes, through which gradients flow back to all of them."""
    return values if alone() else _Total.apply(values)


class _Total(torch.autograd.Function):
    """A sum over the processes; its gradient is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        values = values.clone()
        dist.all_reduce(values)
        return values

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # type: ignore[override]
        return _Total.forward(ctx, gradient)


@torch.no_grad()
def all_rows(rows_BD: Tensor) -> tuple[Tensor, int]:
    """rows_ND of all processes in order, without gradient, and the place of this process's first row among them."""
    if alone():
        return rows_BD.detach(), 0
    counts = torch.zeros(dist.get_world_size(), dtype=torch.int64, device=rows_BD.device)
    counts[dist.get_rank()] = len(rows_BD)
    dist.all_reduce(counts)
    first = int(counts[: dist.get_rank()].sum())
    # A sum with zeros is a concatenation, and parts may differ in length.
    rows_ND = rows_BD.new_zeros(int(counts.sum()), rows_BD.shape[1])
    rows_ND[first : first + len(rows_BD)] = rows_BD
    dist.all_reduce(rows_ND)
    return rows_ND, first


class GlobalBatchNorm2d(nn.BatchNorm2d):
    """torch's own with one process; with several, over the samples of all of them."""

    def forward(self, input: Tensor) -> Tensor:
        if alone() or not self.training:
            return super().forward(input)
        x_BCHW = input.float()
        count = total(torch.tensor(float(x_BCHW.numel() // x_BCHW.shape[1]), device=input.device))
        mean_C11 = total(x_BCHW.sum(dim=(0, 2, 3)))[:, None, None] / count
        centred_BCHW = x_BCHW - mean_C11
        variance_C = total(centred_BCHW.square().sum(dim=(0, 2, 3))) / count
        self._remember(mean_C11.flatten().detach(), (variance_C * count / (count - 1)).detach())
        scale_C = self.weight * (variance_C + self.eps).rsqrt()
        return torch.addcmul(self.bias[:, None, None], centred_BCHW, scale_C[:, None, None]).to(input.dtype)

    def _remember(self, mean_C: Tensor, variance_C: Tensor) -> None:
        """Moving averages, for evaluation."""
        assert self.running_mean is not None and self.running_var is not None and self.momentum is not None
        self.running_mean.lerp_(mean_C, self.momentum)
        self.running_var.lerp_(variance_C, self.momentum)
        if self.num_batches_tracked is not None:
            self.num_batches_tracked += 1


class BatchNorm(nn.Module):
    """Batch normalisation (arXiv:1502.03167) over the samples of all processes. It keeps no running statistics."""

    def __init__(self, width: int, *, affine: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.eps = eps
        self.affine = affine
        if affine:
            self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x_BD: Tensor) -> Tensor:
        x_BD = x_BD.float()
        count = total(torch.tensor(float(len(x_BD)), device=x_BD.device))
        centred_BD = x_BD - total(x_BD.sum(dim=0)) / count
        variance_D = total(centred_BD.square().sum(dim=0)) / count
        normal_BD = centred_BD * (variance_D + self.eps).rsqrt()
        return normal_BD * self.weight + self.bias if self.affine else normal_BD
