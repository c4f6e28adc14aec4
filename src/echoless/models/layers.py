"""Which layers are the transformers built from?

Shape suffixes, used in all of `models`:
  B batch   C channels   H, W height and width   N patches of an image   P values in a patch, p * p * C
  T tokens (extra ones first, then the patches present)   D width   K visible patches   M hidden patches (N - K)
  S residual branches, in the order of the stream
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config import ShortcutConfig
from echoless.config.model import Activation
from echoless.models.linear import Dense
from echoless.models.places import NOWHERE, Places, RelativeBias
from echoless.shortcuts import Shortcut, alphas, make_shortcut

# Called with the name of every intermediate and its value, which it observes and cannot change: models/features.py.
Note = Callable[[str, Tensor], None]
Layer = TypeVar("Layer", bound=nn.Module)


def ignore(name: str, value: Tensor) -> None:
    """The default observer: records no intermediates."""


def patchify(images_BCHW: Tensor, patch: int) -> Tensor:
    """Cut images into patches (B, N, P), row by row; the values of a patch run over rows, columns, channels."""
    B, C, H, W = images_BCHW.shape
    if H % patch or W % patch:
        raise ValueError(f"image size is {H} x {W}; allowed: multiples of the patch size {patch}")
    # Channels last first: the second copy then moves whole rows of a patch, and both take half the time of one.
    images_BHWC = images_BCHW.permute(0, 2, 3, 1).contiguous()
    cut = images_BHWC.reshape(B, H // patch, patch, W // patch, patch * C)
    return cut.transpose(2, 3).reshape(B, (H // patch) * (W // patch), patch * patch * C)


def unpatchify(patches_BNP: Tensor, patch: int, grid: tuple[int, int]) -> Tensor:
    """The inverse of `patchify`, for a grid of rows x columns."""
    (B, _, P), (rows, columns) = patches_BNP.shape, grid
    cut = patches_BNP.reshape(B, rows, columns, patch, patch, P // patch**2)
    return cut.permute(0, 5, 1, 3, 2, 4).reshape(B, -1, rows * patch, columns * patch)


def sincos_positions(grid: tuple[int, int], width: int) -> Tensor:
    """Fixed 2-d positions (N, D): sin and cos of the column, then sin and cos of the row (He et al. 2022)."""
    if torch.get_default_device().type == "meta":  # only shapes are asked for, and `arange` there imports the compiler
        return torch.empty(grid[0] * grid[1], width)
    rows, columns = (torch.arange(side, dtype=torch.float64) for side in grid)
    frequencies = 10000.0 ** -(torch.arange(width // 4, dtype=torch.float64) / (width // 4))
    y_N, x_N = (axis.flatten() for axis in torch.meshgrid(rows, columns, indexing="ij"))
    angles = [coordinate[:, None] * frequencies for coordinate in (x_N, y_N)]
    return torch.cat([wave(angle) for angle in angles for wave in (torch.sin, torch.cos)], dim=1).float()


def resample_positions(
    positions_ND: Tensor, grid: tuple[int, int], new_grid: tuple[int, int], *, antialias: bool = True
) -> Tensor:
    """Position embeddings of one grid, interpolated (bicubic) to another, for images of another size."""
    if grid == new_grid:
        return positions_ND
    table = positions_ND.T.reshape(1, -1, *grid)
    table = F.interpolate(table, size=new_grid, mode="bicubic", align_corners=False, antialias=antialias)
    return table.flatten(2)[0].T


def uninitialised(layer: type[Layer], *sizes: int, **settings: Any) -> Layer:
    """A layer whose weights have no values yet; `initialise` draws them from a generator.

    As torch.nn.utils.skip_init, whose way over `empty_like` imports sympy: a second in every process.
    """
    made = layer(*sizes, **settings, device="meta")
    for name, weight in list(made.named_parameters()):
        setattr(made, name, nn.Parameter(torch.empty(weight.shape)))
    return made


def linear(inputs: int, outputs: int, bias: bool = True) -> nn.Linear:
    """With uninitialised weights."""
    return uninitialised(Dense, inputs, outputs, bias=bias)


class Attention(nn.Module):
    """Multi-head self-attention. `relative`: its biases by distance, where there are any."""

    def __init__(self, width: int, heads: int, qkv_bias: bool = True, relative: RelativeBias | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.relative = relative
        self.qkv = linear(width, 3 * width, bias=qkv_bias)
        self.proj = linear(width, width)

    def forward(self, x_BTD: Tensor, note: Note = ignore, name: str = "block", places: Places = NOWHERE) -> Tensor:
        B, T, D = x_BTD.shape
        # Cut before the heads are: backward then joins three gradients in one copy.
        parts_BTD = self.qkv(x_BTD).chunk(3, dim=-1)
        note(f"{name}/key", parts_BTD[1])
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in parts_BTD)
        if places.rotation is not None:
            q, k = places.rotation(q), places.rotation(k)
        bias = None if self.relative is None or places.distances is None else self.relative(places.distances)
        mixed = F.scaled_dot_product_attention(q, k, v, None if bias is None else bias.to(q.dtype))
        return self.proj(mixed.transpose(1, 2).reshape(B, T, D))


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


class MLP(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, width: int, hidden: int, activation: Activation = "gelu") -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[activation]
        self.fc1 = linear(width, hidden)
        self.fc2 = linear(hidden, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        return self.fc2(self.activation(self.fc1(x_BTD)))


# SwiGLU, arXiv:2002.05202.
class GatedMLP(nn.Module):
    """The first linear layer makes gates and values; the second reads activation(gate) * value."""

    def __init__(self, width: int, hidden: int, activation: Activation) -> None:
        super().__init__()
        self.activation = _ACTIVATIONS[activation]
        self.fc1 = linear(width, 2 * hidden)
        self.fc2 = linear(hidden, width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        gate, value = self.fc1(x_BTD).chunk(2, dim=-1)
        return self.fc2(self.activation(gate) * value)


# Section 2 of arXiv:2103.17239.
class LayerScale(nn.Module):
    """A learned factor for every channel of a branch."""

    def __init__(self, width: int, start: float) -> None:
        super().__init__()
        self.gamma = nn.Parameter(torch.full((width,), start))

    def forward(self, branch_BTD: Tensor) -> Tensor:
        return branch_BTD * self.gamma


@dataclass(frozen=True, kw_only=True)
class BlockOptions:
    """What a block may have besides, each off by default: see `ViTConfig`."""

    qkv_bias: bool = True
    layer_scale: float | None = None
    gated_mlp: bool = False
    activation: Activation = "gelu"
    relative_grid: tuple[int, int] | None = None  # of the patches, where attention has relative biases

    def mlp(self, width: int, hidden: int) -> MLP | GatedMLP:
        return (GatedMLP if self.gated_mlp else MLP)(width, hidden, self.activation)

    def scale(self, width: int) -> LayerScale | None:
        return None if self.layer_scale is None else LayerScale(width, self.layer_scale)

    def relative(self, heads: int) -> RelativeBias | None:
        return None if self.relative_grid is None else RelativeBias(self.relative_grid, heads)


PLAIN = BlockOptions()


class Block(nn.Module):
    """A pre-norm transformer block; its two shortcuts are passed in."""

    def __init__(
        self,
        width: int,
        heads: int,
        mlp_ratio: float,
        norm_eps: float,
        shortcuts: Sequence[Shortcut],
        options: BlockOptions = PLAIN,
    ) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=norm_eps)
        self.attn = Attention(width, heads, options.qkv_bias, options.relative(heads))
        self.attn_scale = options.scale(width)
        self.attn_shortcut = shortcuts[0]
        self.norm2 = nn.LayerNorm(width, eps=norm_eps)
        self.mlp = options.mlp(width, int(width * mlp_ratio))
        self.mlp_scale = options.scale(width)
        self.mlp_shortcut = shortcuts[1]

    def forward(
        self,
        x_BTD: Tensor,
        note: Note = ignore,
        name: str = "block",
        drop_path_B2: Tensor | None = None,
        places: Places = NOWHERE,
    ) -> Tensor:
        branch = self.attn(self.norm1(x_BTD), note, name, places)
        branch = drop_path(branch if self.attn_scale is None else self.attn_scale(branch), drop_path_B2, 0)
        note(f"{name}/attn", branch)
        x_BTD = self.attn_shortcut(x_BTD, branch)
        note(f"{name}/+attn", x_BTD)
        branch = self.mlp(self.norm2(x_BTD))
        branch = drop_path(branch if self.mlp_scale is None else self.mlp_scale(branch), drop_path_B2, 1)
        note(f"{name}/mlp", branch)
        x_BTD = self.mlp_shortcut(x_BTD, branch)
        note(f"{name}/+mlp", x_BTD)
        return x_BTD


# Stochastic depth, arXiv:1603.09382.
def drop_path(branch: Tensor, factors_BS: Tensor | None, index: int) -> Tensor:
    """The branch (B, ...) times each sample's factor, 0 or 1 / (1 - rate); unchanged where no factors are given."""
    if factors_BS is None:
        return branch
    return branch * factors_BS[:, index].to(branch.dtype).view(-1, *[1] * (branch.ndim - 1))


def build_shortcuts(depth: int, shortcuts: ShortcutConfig) -> list[tuple[Shortcut, Shortcut]]:
    """The shortcuts of attention and MLP of every block, with the alphas of the schedule."""
    schedule = alphas(
        depth,
        alpha_min=shortcuts.alpha_min,
        schedule=shortcuts.schedule,
        per=shortcuts.per,
        fade=shortcuts.fade,
    )
    joins = [make_shortcut(shortcuts.variant, alpha) for alpha in schedule]
    return list(zip(joins[0::2], joins[1::2]))


def build_blocks(
    *,
    width: int,
    depth: int,
    heads: int,
    mlp_ratio: float,
    norm_eps: float,
    shortcuts: ShortcutConfig,
    options: BlockOptions = PLAIN,
) -> nn.ModuleList:
    """`depth` blocks whose 2 * depth shortcuts follow the schedule."""
    pairs = build_shortcuts(depth, shortcuts)
    return nn.ModuleList(Block(width, heads, mlp_ratio, norm_eps, pair, options) for pair in pairs)


def initialise(module: nn.Module, *, zero_branches: bool, generator: torch.Generator | None) -> None:
    """Xavier-uniform linears with zero biases (He et al. 2022).

    zero_branches: section 3.2, arXiv:2404.10947. The last linear of every branch starts at zero, which keeps the
    feature norms from growing when alpha is small.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight, generator=generator)
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    if zero_branches:
        silence_branches(module)


def silence_branches(module: nn.Module) -> None:
    """Zero-initialise the last linear layer of every branch."""
    for block in module.modules():
        if isinstance(block, Block):
            nn.init.zeros_(block.attn.proj.weight)
            nn.init.zeros_(block.mlp.fc2.weight)


def take_rows(x_BND: Tensor, ids_BK: Tensor) -> Tensor:
    """Select rows per sample: (B, K, D). Faster than `gather`, which copies value by value."""
    B, N, D = x_BND.shape
    offsets = torch.arange(0, B * N, N, device=x_BND.device)[:, None]
    return x_BND.reshape(B * N, D).index_select(0, (ids_BK + offsets).flatten()).view(B, -1, D)


def count_parameters(module: nn.Module) -> int:
    return sum(math.prod(parameter.shape) for parameter in module.parameters())
