"""Which layers does an encoder of ours have? Their names, their sizes, and the alphas that it was trained with."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from pathlib import Path

import torch

from echoless.runs.open import TrainedBody, load_body
from echoless.shortcuts import FadedShortcut, FadeReport
from echoless.shortcuts.report import table


@dataclass(frozen=True)
class Layer:
    """The stream after a shortcut, or after the final norm, which has no alpha."""

    name: str
    tokens: int
    width: int
    alpha: float | None = None
    product: float | None = None  # of all alphas so far: what is left of the input


@dataclass(frozen=True)
class TrainedReport(FadeReport):
    """A `FadeReport` of what was trained with its alphas; printed, a table of its layers."""

    layers: tuple[Layer, ...] = ()

    def __str__(self) -> str:
        rows = [
            (layer.name, f"{layer.tokens} x {layer.width}", _number(layer.alpha, ".4f"), _number(layer.product, ".3g"))
            for layer in self.layers
        ]
        head = f"{self.model}: {len(self.shortcuts)} shortcuts. {self.rule}"
        return f"{head}\n\n{table(('layer', 'tokens x width', 'alpha', 'product'), rows)}"


def inspect_trained(path: Path) -> TrainedReport:
    """The layers of a run or an encoder folder, as it was trained."""
    body = load_body(path)
    record = body.model.shortcut_record
    kinds = ("attention", "mlp") if body.config.branches > body.config.blocks else ("convolutions",)
    shortcuts = tuple(
        FadedShortcut(f"blocks.{i // len(kinds)}", "alpha * x + f(x)", "x", kinds[i % len(kinds)], alpha)
        for i, alpha in enumerate(record["alphas"])
    )
    read = body.config.feature_layers
    rule = f"As it was trained; --layer takes the outputs of blocks, {read[0]} to {read[-1]}."
    layers = tuple(_layers(body, record["alphas"]))
    return TrainedReport(f"{path.name} ({record['variant']})", shortcuts, (), rule, layers=layers)


def _layers(body: TrainedBody, alphas: list[float]) -> Iterator[Layer]:
    """One for every shortcut, and the final norm where there is one."""
    config = body.config
    parts = ("attn", "mlp") if config.branches > config.blocks else ("conv",)
    names = [f"block{index:02d}/+{part}" for index in range(config.blocks) for part in parts]
    after = [name for name in config.feature_layers if name not in names]
    sizes = _sizes(body, [*names, *after])
    for name, alpha, product in zip(names, alphas, accumulate(alphas, mul)):
        yield Layer(name, *sizes[name], alpha, product)
    yield from (Layer(name, *sizes[name]) for name in after)


def _sizes(body: TrainedBody, names: list[str]) -> dict[str, tuple[int, int]]:
    """Tokens and width of each; those of a convolutional network are seen in its features."""
    config = body.config
    if config.grid is not None:
        return dict.fromkeys(names, (config.extra_tokens + math.prod(config.grid), config.width))
    found = body.model.features(torch.zeros(1, config.channels, *config.image_size))
    return {name: (found[name].shape[1], found[name].shape[2]) for name in names}


def _number(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)
