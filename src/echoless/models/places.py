"""How does attention know where a patch is, if nothing was added to its token? Rotations and relative biases.

rotary: queries and keys are turned by angles that depend on the patch's place (DINOv3, arXiv:2508.10104).
relative: every pair of places has a learned logit, for each head (BEiT, arXiv:2106.08254).
(Legend: models/layers.py; h width of a head.)
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Grid = tuple[int, int]  # rows, columns
_SPECIAL = 3  # distances of the class token: from it, to it, and to itself


class Rotation(NamedTuple):
    """Cosines and sines of every token: (T, h), or (B, 1, T, h) where each sample has its own patches."""

    cos: Tensor
    sin: Tensor

    def __call__(self, x_BHTh: Tensor) -> Tensor:
        """The halves of each head are the coordinates that are turned together."""
        first, second = x_BHTh.chunk(2, dim=-1)
        turned = torch.cat([-second, first], dim=-1)
        return x_BHTh * self.cos.to(x_BHTh.dtype) + turned * self.sin.to(x_BHTh.dtype)


class Distances(NamedTuple):
    """For every pair of tokens the row of the table of biases, (T, T) or (B, T, T), on a grid of patches."""

    entries: Tensor
    grid: Grid


class Places(NamedTuple):
    """What the blocks are told about the places of their tokens."""

    rotation: Rotation | None = None
    distances: Distances | None = None


NOWHERE = Places()


# Section 3.2 of arXiv:2508.10104, with places measured from -1 to 1 in both directions, whatever the grid.
def rotation_of(
    grid: Grid, head: int, theta: float, prefix: int, keep_BK: Tensor | None, device: torch.device
) -> Rotation:
    """Of all patches, or of those in `keep`; the tokens before them are not turned."""
    periods = theta ** torch.arange(0, 1, 4 / head, device=device)
    sides = [(torch.arange(side, device=device) + 0.5) / side * 2 - 1 for side in grid]
    places_N2 = torch.stack(torch.meshgrid(*sides, indexing="ij"), dim=-1).flatten(0, 1)
    angles_Nh = (2 * math.pi * places_N2[:, :, None] / periods).flatten(1).tile(2)
    cos, sin = (
        F.pad(wave, (0, 0, prefix, 0), value=still) for wave, still in ((angles_Nh.cos(), 1), (angles_Nh.sin(), 0))
    )
    if keep_BK is None:
        return Rotation(cos, sin)
    kept_BT = with_prefix(keep_BK, prefix)
    return Rotation(F.embedding(kept_BT, cos)[:, None], F.embedding(kept_BT, sin)[:, None])


def with_prefix(keep_BK: Tensor, prefix: int) -> Tensor:
    """Indices of patches as indices of tokens, after those of the tokens before them."""
    first = torch.arange(prefix, device=keep_BK.device).expand(len(keep_BK), -1)
    return torch.cat([first, keep_BK + prefix], dim=1)


def distances_of(grid: Grid, keep_BK: Tensor | None, device: torch.device) -> Distances:
    """Of all tokens, or of the class token and the patches in `keep`."""
    rows, columns = grid
    y_N, x_N = (axis.flatten() for axis in torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij"))
    down, right = (axis[:, None] - axis + side - 1 for axis, side in ((y_N, rows), (x_N, columns)))
    index_TT = F.pad(down * (2 * columns - 1) + right, (1, 0, 1, 0))
    last = (2 * rows - 1) * (2 * columns - 1)
    index_TT[0, :], index_TT[:, 0], index_TT[0, 0] = last, last + 1, last + 2
    index_TT = index_TT.to(device)
    if keep_BK is None:
        return Distances(index_TT, grid)
    kept_BT = with_prefix(keep_BK, 1)
    return Distances(index_TT[kept_BT[:, :, None], kept_BT[:, None, :]], grid)


class RelativeBias(nn.Module):
    """A learned logit for every distance between two patches, and for the class token; one column for each head."""

    def __init__(self, grid: Grid, heads: int) -> None:
        super().__init__()
        self.grid = grid
        self.table = nn.Parameter(torch.zeros((2 * grid[0] - 1) * (2 * grid[1] - 1) + _SPECIAL, heads))

    def forward(self, distances: Distances) -> Tensor:
        """(1, H, T, T), or (B, H, T, T)."""
        bias = F.embedding(distances.entries, self.resampled(distances.grid)).movedim(-1, -3)
        return bias if bias.ndim == 4 else bias[None]

    def resampled(self, grid: Grid) -> Tensor:
        """The table for another grid, interpolated."""
        if grid == self.grid:
            return self.table
        old, new = ([2 * side - 1 for side in each] for each in (self.grid, grid))
        places, special = self.table[:-_SPECIAL], self.table[-_SPECIAL:]
        table = F.interpolate(places.T.reshape(1, -1, *old), size=new, mode="bilinear")
        return torch.cat([table.flatten(2)[0].T, special])
