"""How does a diffusion transformer start from trained weights? They are converted to its alphas, function unchanged.

The identity is that of shortcuts/fold.py: with the stream multiplied by r_l after branch l, other alphas give the same
function. In a SiT the gates carry the factors, and the output is held (r_L = 1), so that LayerNorm's eps matters less
than before. A U-ViT cannot multiply its time token, so r_0 = 1; every long skip mixes the stream anew, and with it the
factor starts at 1 again. Long skips that the old network did not have start at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from echoless.models import SiT, UViT
from echoless.runs.open import TrainedBody
from echoless.shortcuts import stream_factors
from echoless.training.fitting import converting, fixed_alphas, require_same

_SAME = ("image_size", "patch_size", "channels", "width", "depth", "heads", "mlp_ratio")
_SAME_TOO = {"uvit": ("conv",), "sit": ("learn_sigma", "time_waves")}


@torch.no_grad()
def start_denoiser(model: UViT | SiT, trained: TrainedBody) -> str:
    """Load weights of the same kind and sizes, under any fixed alphas. Returns a sentence saying what was done."""
    old: UViT | SiT = trained.model
    _require_fitting(old, model, trained.name)
    moved = old.shortcut_record != model.shortcut_record
    gained = bool(model.skips) and not old.skips
    said = _said(trained.title, old, model, moved, gained)
    if moved:
        MOVES[old.config.kind](old, fixed_alphas(old.shortcuts), fixed_alphas(model.shortcuts))
    state = old.state_dict()
    if old.config.classes != model.config.classes:
        own = {} if model.label_table is None else {"label_table": model.label_table}
        state = {name: value for name, value in state.items() if name != "label_table"} | own
    if gained:
        state |= {f"skips.{name}": torch.zeros_like(value) for name, value in model.skips.state_dict().items()}
    model.load_state_dict(state)
    return said


def _require_fitting(old: UViT | SiT, new: UViT | SiT, source: str) -> None:
    lost = ["long_skips is True there and False here"] if old.skips and not new.skips else []
    require_same(old.config, new.config, (*_SAME, *_SAME_TOO[new.config.kind], "extra_tokens"), source, lost)


def _move_sit(model: SiT, old: list[float], new: list[float]) -> None:
    factors = _factors(old, new)
    for tensor in (model.patch_embed.weight, model.patch_embed.bias, model.positions):
        tensor.mul_(factors[0])
    blocks: list[Any] = list(model.blocks)
    for index, block in enumerate(blocks):
        for part, factor in ((2, factors[2 * index + 1]), (5, factors[2 * index + 2])):  # the two gates
            for tensor in (block.modulation.weight, block.modulation.bias):
                tensor.chunk(6)[part].mul_(factor)
    first_out = len(model.blocks) - len(model.skips)
    for index, skip in enumerate(model.skips):
        source, target = first_out - 1 - index, first_out + index
        _rescale(skip, factors[2 * source + 2], factors[2 * target])


def _move_uvit(model: UViT, old: list[float], new: list[float]) -> None:
    _factors(old, new)  # refuses alphas of 0
    middle, factor, kept = len(model.skips), 1.0, list[float]()
    blocks: list[Any] = list(model.blocks)
    skips: list[Any] = list(model.skips)
    for index, block in enumerate(blocks):
        if index > middle:
            stream, other = skips[index - middle - 1].weight.chunk(2, dim=1)
            stream.div_(factor)
            other.div_(kept.pop())
            factor = 1.0
        for branch, shortcut in ((block.attn.proj, 2 * index), (block.mlp.fc2, 2 * index + 1)):
            factor *= new[shortcut] / old[shortcut]
            for tensor in (branch.weight, branch.bias):
                tensor.mul_(factor)
        if index < middle:
            kept.append(factor)


MOVES: dict[str, Callable[[Any, list[float], list[float]], None]] = {"sit": _move_sit, "uvit": _move_uvit}


def _factors(old: list[float], new: list[float]) -> tuple[float, ...]:
    with converting():
        return stream_factors(old, new)


def _rescale(linear: Any, source: float, target: float) -> None:
    """A linear that reads a stream multiplied by `source` and adds to one multiplied by `target`."""
    linear.weight.mul_(target / source)
    linear.bias.mul_(target)


def _said(source: str, old: UViT | SiT, new: UViT | SiT, moved: bool, gained: bool) -> str:
    parts = [f"started from {source}"]
    if moved:
        then, now = (_last(model) for model in (old, new))
        parts.append(f"branches rescaled from alpha_min {then:.4g} to {now:.4g}, the function is unchanged")
    if gained:
        parts.append("its new long skips start at zero")
    if old.config.classes != new.config.classes:
        parts.append(f"labels start anew ({old.config.classes} there, {new.config.classes} here)")
    return "; ".join(parts)


def _last(model: UViT | SiT) -> float:
    alphas = model.shortcut_record["alphas"]
    return float(alphas[-1]) if alphas else math.nan
