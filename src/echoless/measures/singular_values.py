"""What is the condition number of a layer's Jacobian, and how diagonal is its attention?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

SETTLED = 1e-9  # relative to the largest value; smaller ones cannot be distinguished from rounding errors
Apply = Callable[[Tensor], Tensor]


class Extremes(NamedTuple):
    """The largest and the smallest singular value; `exact`, or by Lanczos, which underestimates their ratio."""

    largest: float
    smallest: float
    exact: bool

    @property
    def condition(self) -> float:
        """Their ratio: the condition number where exact, else a lower bound of it."""
        return self.largest / self.smallest if self.smallest > 0 else math.inf


# Proposition 1 of arXiv:2510.00345 is about when this is near 1, and when near 1 / tokens.
def diagonal_attention(query_BHTK: Tensor, key_BHTK: Tensor) -> Tensor:
    """How much each token attends to itself (B, H, T): the diagonal of softmax(q k^T / sqrt(K))."""
    logits = query_BHTK @ key_BHTK.transpose(-2, -1) / math.sqrt(query_BHTK.shape[-1])
    return (logits.diagonal(dim1=-2, dim2=-1) - logits.logsumexp(dim=-1)).exp()


def extreme_singular_values(matrix_MN: Tensor, rank: int) -> Extremes:
    """Of a matrix that is known to have no more than `rank` singular values above zero."""
    values = torch.linalg.svdvals(matrix_MN.double())
    return Extremes(float(values[0]), float(values[rank - 1]), exact=True)


# Golub & Kahan 1965: A V = U B with B bidiagonal.
def lanczos_singular_values(apply: Apply, apply_transposed: Apply, start_N: Tensor, steps: int) -> Extremes:
    """From products with A and A^T only, in the Krylov space of the start vector.

    Every new vector is orthogonalised twice against all earlier ones, to avoid spurious copies of singular values.
    """
    right, left = [start_N / start_N.norm()], list[Tensor]()
    diagonal, above = list[float](), list[float]()
    for _ in range(steps):
        u = _orthogonal(apply(right[-1]), left)
        if left and u.norm() <= SETTLED * max(diagonal):
            break
        diagonal.append(float(u.norm()))
        left.append(u / u.norm())
        v = _orthogonal(apply_transposed(left[-1]), right)
        above.append(float(v.norm()))
        if v.norm() <= SETTLED * max(diagonal):  # the space is complete: all that follows would be rounding
            break
        right.append(v / v.norm())
    bidiagonal = torch.diag(torch.tensor(diagonal, dtype=torch.float64))
    bidiagonal += torch.diag(torch.tensor(above[: len(diagonal) - 1], dtype=torch.float64), 1)
    values = torch.linalg.svdvals(bidiagonal)
    return Extremes(float(values[0]), float(values[-1]), exact=False)


def _orthogonal(vector: Tensor, basis: list[Tensor]) -> Tensor:
    if basis:
        rows = torch.stack(basis)
        for _ in range(2):
            vector = vector - rows.T @ (rows @ vector)
    return vector
