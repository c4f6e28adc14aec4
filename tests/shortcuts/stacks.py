"""Small residual networks of four MLP branches, for the tests of `fade`."""

from __future__ import annotations

from torch import Tensor, nn

WIDTH = 8
A4 = (1.0, 0.8, 0.6, 0.4)  # four shortcuts, alpha_min 0.4


def mlp() -> nn.Module:
    return nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, WIDTH))


class Stack(nn.Module):
    """Four branches; subclasses define how they are added."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList(mlp() for _ in range(4))


class Loop(Stack):
    def forward(self, x: Tensor) -> Tensor:
        for branch in self.branches:
            x = x + branch(x)
        return x


class Residual(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return self.branch(x) + x


class Wrapped(Stack):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(Residual(branch) for branch in self.branches))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(x)
