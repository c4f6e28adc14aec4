"""How does a model that `fade` rewrote become a plain one of its own class? By rescaling weights, as in fold.py.

Here the embeddings are held (r_0 = 1), because in a foreign model only the branches are known. The stream then grows by
r_l = 1 / (a_1 ... a_l), branch l is multiplied by r_l, and every norm that reads the stream gets eps * r^2. The output
is unchanged where all reads of the stream go through such norms, the last one included; this is checked on the example.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn

from echoless.shortcuts.check import close
from echoless.shortcuts.fading import ShortcutSearch, is_faded, unfade
from echoless.shortcuts.find import FoundShortcut
from echoless.shortcuts.trace import Node
from echoless.shortcuts.travel import record_in
from echoless.shortcuts.zero import last_weights

_NORMS = frozenset({"layer_norm", "rms_norm"})
Model = TypeVar("Model", bound=nn.Module)


def fold_faded(model: Model, example: object) -> Model:
    """A copy with plain shortcuts, of the class that the model had before `fade`, that computes the same function."""
    if not is_faded(model):
        raise ValueError(f"{type(model).__name__} has no faded shortcuts, so there is nothing to fold")
    saved = record_in(model)
    plain = copy.deepcopy(model)
    unfade(plain)
    found = ShortcutSearch(plain, example, saved.within, frozenset(saved.include))
    alphas = [shortcut.alpha for shortcut in saved.shortcuts]
    if min(alphas) <= 0:
        raise ValueError("an alpha is 0; allowed: above 0, because a shortcut of weight 0 cannot be folded")
    expected = found.faded_outputs(alphas)[False]
    _rescale(plain, found, alphas)
    if not close(found.runner.run(), expected):
        raise ValueError(
            f"{type(model).__name__} cannot be folded: its stream is also read without a norm (post-norm blocks, no "
            "norm at the end, or hidden states in the output), so that a plain network would be another function"
        )
    return plain


def _rescale(model: nn.Module, found: ShortcutSearch, alphas: Iterable[float]) -> None:
    grown, factor = {_origin(found.shortcuts[0].stream): 1.0}, 1.0
    with torch.no_grad():
        for shortcut, alpha in zip(found.shortcuts, alphas):
            factor /= alpha
            grown[shortcut.addition.result] = factor
            for weight in _weights_once(found, shortcut):
                if not torch.isfinite(weight.mul(factor)).all():
                    raise ValueError(f"weights would overflow in {weight.dtype}; convert the model to float32 first")
                weight.mul_(factor)
    for node in found.tracer.nodes:
        if node.name in _NORMS and node.parents and (origin := _origin(node.parents[0])) in grown:
            _scale_eps(model, node, grown[origin] ** 2)


def _weights_once(found: ShortcutSearch, shortcut: FoundShortcut) -> tuple[nn.Parameter, ...]:
    weights = last_weights(shortcut)
    where = shortcut.addition.module or "the model"
    if not weights or any(found.tracer.uses[id(weight)] > 1 for weight in weights):
        why = "is used more than once" if weights else "was not found"
        raise ValueError(f"{where}: the last layer of its branch {why}, so its shortcut cannot be folded")
    return weights


def _origin(node: Node) -> Node:
    """The stream itself, before it was copied or cast."""
    while node.name in ("contiguous", "to", "float", "clone") and len(node.parents) == 1:
        node = node.parents[0]
    return node


def _scale_eps(model: nn.Module, node: Node, factor: float) -> None:
    """The eps of the norm that this node is the output of, found by its weight."""
    owners: Mapping[int, nn.Module] = {id(p): module for module in model.modules() for p in module._parameters.values()}
    for weight in node.weights:
        owner: Any = owners[id(weight)]
        if isinstance(getattr(owner, "eps", None), float):
            owner.eps = owner.eps * factor
            return
    # A norm without weights, or with an eps of another kind: the check of the outputs decides.
