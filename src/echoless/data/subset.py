"""Which images stand for a large set? A random draw, stratified by class where there are labels, the same for a seed.

The first images of a folder never do: folders are sorted, so the first ones are of one class.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from echoless.data.images import Images
from echoless.randomness import generator_for


def draw_rows(total: int, count: int, labels_N: Tensor | None = None, *, seed: int) -> Tensor:
    """`count` of `total` rows, in an order of which every beginning is such a draw; all rows where there are fewer."""
    order_N = torch.randperm(total, generator=generator_for(seed, "subset", 0))
    if labels_N is not None:
        order_N = order_N[_interleaved(labels_N[order_N]).argsort(stable=True)]
    return order_N[:count]


def _interleaved(labels_N: Tensor) -> Tensor:
    """How far each row is through its own class, 0 to 1: sorted by this, every class advances at its own share."""
    place_N = torch.empty(len(labels_N), dtype=torch.float64)
    for label in labels_N.unique():
        rows = (labels_N == label).nonzero()[:, 0]
        place_N[rows] = (torch.arange(len(rows), dtype=torch.float64) + 0.5) / len(rows)
    return place_N


def draw_images(images: Images, count: int, *, seed: int) -> list[int]:
    """The numbers of `count` usable images."""
    usable = torch.from_numpy(images.usable_ids())
    return usable[draw_rows(len(usable), count, images.labels_of(usable), seed=seed)].tolist()


def draw_protocol(images: Images, count: int) -> dict[str, Any]:
    """How the images were chosen, for the protocol of a number: nothing where all of them were used."""
    if count >= images.usable:
        return {}
    return {"drawn": "stratified" if images.labels is not None else "at random"}
