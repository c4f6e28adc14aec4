"""Where is alpha * x + f(x) computed? Here, and nowhere else.

Every way of joining a stream x with its branch f(x) is a small module called as `shortcut(x, fx)`. Fixed coefficients
are Python floats: one kernel, no buffer, no key in the state dict. Equation numbers: arXiv:2404.10947 unless said.
"""

from __future__ import annotations

import difflib
import math
from typing import Literal, get_args

import torch
from torch import Tensor, nn

Variant = Literal["faded", "identity", "scale_both", "scale_branch", "learnable", "magnitude_preserving", "none"]
VARIANTS: tuple[str, ...] = get_args(Variant)


# Eq. (3), arXiv:2404.10947.
def residual(x: Tensor, fx: Tensor, alpha: float | Tensor = 1.0) -> Tensor:
    """alpha * x + f(x), in one kernel. An alpha that is a tensor has no axes.

    >>> residual(torch.tensor([1.0, 2.0]), torch.tensor([10.0, 10.0]), alpha=0.5)
    tensor([10.5000, 11.0000])
    """
    if isinstance(alpha, Tensor):
        return torch.addcmul(fx, x, alpha.to(x.dtype))
    return torch.add(fx, x, alpha=alpha)


# The same for code that `fade` rewrites (rewrite.py): the result lies in memory where that of the old sum did.


def stream_first(x: Tensor, fx: Tensor, alpha: float) -> Tensor:
    """With the memory layout of `x + f(x)`: that of x, where the strides of the operands differ."""
    if x.stride() == fx.stride():
        return residual(x, fx, alpha)
    return residual(fx, x * alpha)


def add_stream_(fx: Tensor, x: Tensor, alpha: float) -> Tensor:
    """In the place of the branch: `fx += x`."""
    return fx.add_(x, alpha=alpha)


def add_branch_(x: Tensor, fx: Tensor, alpha: float) -> Tensor:
    """In the place of the stream: `x += fx`."""
    return x.mul_(alpha).add_(fx)


class Shortcut(nn.Module):
    """Joins the stream with its branch. `alpha` is the weight of the stream, whatever the variant."""

    alpha: float | nn.Parameter

    def forward(self, x: Tensor, fx: Tensor) -> Tensor:
        raise NotImplementedError


class Faded(Shortcut):
    """Eq. (3), arXiv:2404.10947: alpha * x + f(x). With alpha 1 it is the identity shortcut of Eq. (2), bit for bit.

    While alpha changes between steps (`move`), the sum reads it from a tensor, so that a compiled graph need not be
    compiled again; `stand` makes it a constant.
    """

    alpha: float
    moving: Tensor | None

    def __init__(self, alpha: float = 1.0) -> None:
        super().__init__()
        self.alpha = alpha
        self.register_buffer("moving", None, persistent=False)

    def forward(self, x: Tensor, fx: Tensor) -> Tensor:
        return residual(x, fx, self.alpha if self.moving is None else self.moving)

    def move(self, alpha: float) -> None:
        self.alpha = alpha
        if self.moving is None:
            self.moving = torch.empty(())
        self.moving.fill_(alpha)

    def stand(self, alpha: float) -> None:
        self.alpha, self.moving = alpha, None

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:.4g}"


class Learnable(Shortcut):
    """Section A.4, arXiv:2404.10947: Eq. (3) with alpha a parameter that starts at 1."""

    alpha: nn.Parameter

    def __init__(self) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor, fx: Tensor) -> Tensor:
        return residual(x, fx, self.alpha)


class Scaled(Shortcut):
    """Table 3b, arXiv:2404.10947: constant factors on the stream and on the branch."""

    alpha: float

    def __init__(self, alpha: float, branch: float) -> None:
        super().__init__()
        self.alpha, self.branch = alpha, branch

    def forward(self, x: Tensor, fx: Tensor) -> Tensor:
        if self.alpha == 1.0:
            return residual(fx, x, self.branch)
        return residual(x, fx * self.branch, self.alpha)

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:.4g}, branch={self.branch:.4g}"


class NoShortcut(Shortcut):
    """Eq. (1), arXiv:2404.10947: f(x) alone."""

    alpha = 0.0

    def forward(self, x: Tensor, fx: Tensor) -> Tensor:
        return fx


# Eq. (88), arXiv:2312.02696: ((1 - t) a + t b) / sqrt((1 - t)^2 + t^2), with that paper's balance t = 0.3.
def magnitude_preserving(balance: float = 0.3) -> Scaled:
    """Unit-variance x and f(x) give a unit-variance sum."""
    norm = math.hypot(1 - balance, balance)
    return Scaled((1 - balance) / norm, balance / norm)


def make_shortcut(variant: Variant = "faded", alpha: float = 1.0) -> Shortcut:
    """The shortcut a config names. `alpha` matters to "faded" alone."""
    half = math.sqrt(0.5)
    makers = {
        "faded": lambda: Faded(alpha),
        "identity": lambda: Faded(1.0),
        "scale_both": lambda: Scaled(half, half),
        "scale_branch": lambda: Scaled(1.0, half),
        "learnable": Learnable,
        "magnitude_preserving": magnitude_preserving,
        "none": NoShortcut,
    }
    if variant not in makers:
        near = difflib.get_close_matches(str(variant), VARIANTS, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"variant is {variant!r}; allowed: {', '.join(VARIANTS)}{hint}")
    return makers[variant]()
