"""What does a recipe know about the data and about the weights a run starts from? Sizes, numbers, normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from echoless.config import MAEConfig, MaskedConfig, RunConfig

SMALL_SIDE = 128  # images up to this side are used at their own size


@dataclass(frozen=True, slots=True)
class DataFacts:
    channels: int
    height: int
    width: int
    count: int
    accelerated: bool = False  # whether a GPU will do the work
    classes: int | None = None  # where the images are labelled
    bits: int = 8  # of each channel

    @property
    def small(self) -> bool:
        return max(self.height, self.width) <= SMALL_SIDE


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFacts:
    """Of the weights that --init gives. The body has the size of the images that it is given."""

    name: str
    body: Any
    foreign: bool = False  # of another project: its images are normalised as they were there
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    model: MAEConfig | None = None  # the whole model and its objective, where the weights are of a masked autoencoder
    objective: MaskedConfig | None = None
    head: tuple[int, int, int] | None = None  # of DINO, where they have one: hidden, bottleneck, prototypes


Recipe = Callable[[DataFacts], RunConfig]  # its docstring is the command, the cost, what was seen


def steps_for(epochs: float, count: int, batch_size: int) -> int:
    return max(1, math.ceil(epochs * count / batch_size))


def natural_patch(side: int) -> int:
    """The power of two, at most 16, that cuts the side into 7 to 14 rows: 4 for 32, 8 for 96, 16 for 224."""
    return min(16, 2 ** max(0, int(math.log2(max(side, 7) / 7))))


def natural_size(facts: DataFacts) -> tuple[tuple[int, int], int]:
    """Image size and patch: the data's own where it is small, else 224 with a GPU and 128 without."""
    if not facts.small:
        side = 224 if facts.accelerated else 128
        return (side, side), 16
    patch = natural_patch(min(facts.height, facts.width))
    return fitted((facts.height, facts.width), patch), patch


def fitted(size: tuple[int, int], patch: int) -> tuple[int, int]:
    """Each side rounded down to a multiple of the patch size."""
    height, width = (max(patch, side // patch * patch) for side in size)
    return height, width
