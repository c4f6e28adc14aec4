"""How well conditioned are the layers of a transformer, with and without shortcuts? Measured on a batch, not assumed.

The layer is the attention with its shortcut, from what enters a block to what its second norm reads:
J = alpha I + (d SA / d X)(d LN / d X). A LayerNorm drops two directions of every token, its mean and its scale,
whatever the weights are; conditioning is about the others.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from echoless.measures import Extremes, diagonal_attention, extreme_singular_values, lanczos_singular_values
from echoless.randomness import generator_for
from echoless.runtime import Progress
from echoless.shortcuts import TransformerBlock, evaluating, find_blocks

EXACT_UP_TO = 2048  # values of one image's tokens: a Jacobian of 2048 x 2048, seconds a layer
LANCZOS_STEPS = 64
ROWS_AT_ONCE = 64


@torch.no_grad()
def attention_diagonality(model: nn.Module, batch: Tensor) -> dict[str, float]:
    """For every block the mean attention that tokens pay to themselves: 1 is the identity, 1 / tokens is uniform."""
    blocks = find_blocks(model, batch)
    seen = _inputs(model, batch, [block.attention.reader for block in blocks])
    measured = {}
    for block, (tokens, *_) in zip(blocks, seen):
        attention = block.attention
        tokens_BTD = tokens if getattr(attention.reader, "batch_first", True) else tokens.transpose(0, 1)
        query, key = (
            part(tokens_BTD).unflatten(-1, (attention.heads, -1)).transpose(-3, -2)
            for part in (attention.query, attention.key)
        )
        measured[block.name] = float(diagonal_attention(query, key).mean())
    return measured


def jacobian_condition(
    model: nn.Module, batch: Tensor, *, exact_up_to: int = EXACT_UP_TO, steps: int = LANCZOS_STEPS, seed: int = 0
) -> dict[str, Extremes]:
    """For every block the extreme singular values of its attention's Jacobian, geometric means over the batch.

    Exact where an image's tokens have at most `exact_up_to` values; beyond, by Lanczos, whose condition number is a
    lower bound. In double precision, on a copy of the model.
    """
    model = copy.deepcopy(model).double()
    found: dict[str, list[Extremes]] = {}
    with evaluating(model), sdpa_kernel(SDPBackend.MATH):  # the kernel that differentiates in both directions
        model.eval()
        blocks = find_blocks(model, batch.double())
        with Progress("Jacobians", len(batch) * len(blocks), "measured") as progress:
            for block, tokens, rest in _entries(model, batch.double(), blocks):
                if tokens.numel() <= exact_up_to:
                    extremes = _exact(block, tokens, rest)
                else:
                    extremes = _lanczos(block, tokens, rest, steps, seed)
                found.setdefault(block.name, []).append(extremes)
                progress.show(sum(map(len, found.values())))
    return {name: _geometric_mean(values) for name, values in found.items()}


def _entries(
    model: nn.Module, batch: Tensor, blocks: Sequence[TransformerBlock]
) -> Iterator[tuple[TransformerBlock, Tensor, list[Any]]]:
    """What enters every block, one image after the other."""
    for image in batch.split(1):
        for block, (tokens, *rest) in zip(blocks, _inputs(model, image, [block.module for block in blocks])):
            yield block, tokens, rest


def _geometric_mean(values: list[Extremes]) -> Extremes:
    def mean(numbers: list[float]) -> float:
        return math.exp(sum(map(math.log, numbers)) / len(numbers)) if min(numbers) > 0 else 0.0

    return Extremes(mean([v.largest for v in values]), mean([v.smallest for v in values]), values[0].exact)


@torch.no_grad()
def _inputs(model: nn.Module, batch: Tensor, modules: list[nn.Module]) -> list[list[Any]]:
    """What each module was given in one forward."""
    seen: dict[nn.Module, list[Any]] = {}

    def note(module: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        seen.setdefault(module, [*arguments, *keywords.values()] if not arguments else list(arguments))

    hooks = [module.register_forward_pre_hook(note, with_kwargs=True) for module in modules]
    try:
        with evaluating(model):
            model(batch)
    finally:
        for hook in hooks:
            hook.remove()
    return [seen[module] for module in modules]


# K_l of arXiv:2510.00345, with its norm and its shortcut.
def _attention_of(block: TransformerBlock, rest: list[Any]) -> Callable[[Tensor], Tensor]:
    """x -> the stream after the attention, as the second norm reads it."""

    def layer(tokens_BTD: Tensor) -> Tensor:
        with _capturing(block.second_norm) as seen:
            block.module(tokens_BTD, *rest)
        return seen[0]

    return layer


@contextmanager
def _capturing(module: nn.Module) -> Iterator[list[Tensor]]:
    seen: list[Tensor] = []
    hook = module.register_forward_pre_hook(lambda _, arguments: seen.append(arguments[0]))
    try:
        yield seen
    finally:
        hook.remove()


def _exact(block: TransformerBlock, tokens_1TD: Tensor, rest: list[Any]) -> Extremes:
    """The Jacobian row by row: copies of the image make up a batch, and each is asked for another row."""
    layer, size = _attention_of(block, rest), tokens_1TD.numel()
    rows = []
    for row in torch.eye(size, dtype=torch.float64).view(size, *tokens_1TD.shape[1:]).split(ROWS_AT_ONCE):
        tokens = tokens_1TD.expand(len(row), -1, -1).clone().requires_grad_()
        rows.append(torch.autograd.grad(layer(tokens), tokens, row)[0])
    passed = _what_passes(block.first_norm, tokens_1TD)
    jacobian = passed(torch.cat(rows)).flatten(1)
    return extreme_singular_values(jacobian, size - _dropped(block.first_norm) * tokens_1TD.shape[1])


def _lanczos(block: TransformerBlock, tokens_1TD: Tensor, rest: list[Any], steps: int, seed: int) -> Extremes:
    layer, passed = _attention_of(block, rest), _what_passes(block.first_norm, tokens_1TD)
    pull_back = torch.func.vjp(layer, tokens_1TD)[1]

    def apply(vector: Tensor) -> Tensor:
        return torch.func.jvp(layer, (tokens_1TD,), (passed(vector.view_as(tokens_1TD)),))[1].flatten().detach()

    def apply_transposed(vector: Tensor) -> Tensor:
        return passed(pull_back(vector.view_as(tokens_1TD))[0]).flatten().detach()

    noise = torch.randn(tokens_1TD.shape, dtype=torch.float64, generator=generator_for(seed, "probe", 0))
    return lanczos_singular_values(apply, apply_transposed, passed(noise).flatten(), steps)


def _dropped(norm: nn.Module) -> int:
    return 2 if isinstance(norm, nn.LayerNorm) else 1  # RMSNorm keeps the mean


def _what_passes(norm: nn.Module, tokens_1TD: Tensor) -> Callable[[Tensor], Tensor]:
    """The projection onto the directions that the norm does not drop at these tokens."""
    centred = isinstance(norm, nn.LayerNorm)
    scale = tokens_1TD - tokens_1TD.mean(dim=-1, keepdim=True) if centred else tokens_1TD
    scale = scale / scale.norm(dim=-1, keepdim=True)

    def project(vectors_BTD: Tensor) -> Tensor:
        if centred:
            vectors_BTD = vectors_BTD - vectors_BTD.mean(dim=-1, keepdim=True)
        return vectors_BTD - scale * (scale * vectors_BTD).sum(dim=-1, keepdim=True)

    return project
