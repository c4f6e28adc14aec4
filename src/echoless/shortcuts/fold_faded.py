"""How does a model that `fade` rewrote become a plain one of its own class? By rescaling weights, as in fold.py.

Here the embeddings are held (r_0 = 1), because in a foreign model only the branches are known. Behind a shortcut of
alpha a, whose stream is multiplied by r, the sum is multiplied by r / a: its branch is multiplied by r / a, and a norm
that reads the sum gets eps * (r / a)^2. The output is unchanged where all reads of such sums go through norms, as in
pre-norm networks with a norm at the end, and in post-norm ones. This is checked on the example in double precision,
where rounding cannot hide or feign a difference.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from echoless.shortcuts.check import close, in_double
from echoless.shortcuts.fading import ShortcutSearch, unfade
from echoless.shortcuts.find import FoundShortcut, origin_of_scale
from echoless.shortcuts.report import Saved
from echoless.shortcuts.trace import Node
from echoless.shortcuts.travel import record_in
from echoless.shortcuts.zero import last_weights

# In double precision a fold is exact to 1e-12, and to 1e-6 where a model computes parts of it in single precision.
_TOLERANCE = 1e-5
_NORMS = frozenset({"layer_norm", "rms_norm"})
_EPS = ("eps", "variance_epsilon")  # what norms call it
Model = TypeVar("Model", bound=nn.Module)


class _Outcome(NamedTuple):
    """What the folded model gave on the example, what it should have given, and what may be in the way."""

    given: list[Tensor]
    expected: list[Tensor]
    obstacle: str


def fold_faded(model: Model, example: object) -> Model:
    """A copy with plain shortcuts, of the class that the model had before `fade`, that computes the same function."""
    saved = record_in(model)
    if min(shortcut.alpha for shortcut in saved.shortcuts) <= 0:
        raise ValueError("an alpha is 0; allowed: above 0, because a shortcut of weight 0 cannot be folded")
    plain = _plain_copy(model)
    outcome, tolerance = _fold_in_place(plain, example, saved), None
    # A model or device that cannot compute in double precision is judged in its own.
    with contextlib.suppress(ValueError, TypeError, RuntimeError):
        outcome, tolerance = _fold_in_place(_plain_copy(model).double(), in_double(example), saved), _TOLERANCE
    if not close(outcome.given, outcome.expected, tolerance):
        raise ValueError(
            f"{type(model).__name__} cannot be folded: {outcome.obstacle}, so that a plain network would be another "
            "function"
        )
    return plain


def _plain_copy(model: Model) -> Model:
    plain = copy.deepcopy(model)
    unfade(plain)
    return plain


def _fold_in_place(model: nn.Module, example: object, saved: Saved) -> _Outcome:
    found = ShortcutSearch(model, example, saved.within, frozenset(saved.include))
    alphas = [shortcut.alpha for shortcut in saved.shortcuts]
    expected = found.faded_outputs(alphas)[False]
    grown = _rescale(found, alphas)
    norms = _scale_norms(model, found.tracer.nodes, grown)
    return _Outcome(found.runner.run(), expected, _obstacle(found.tracer.nodes, grown, norms))


# r_l = r_{l-1} / a_l, with r_0 = 1 at the start of every stream; shortcuts that were not faded have a_l = 1.
def _rescale(found: ShortcutSearch, alphas: Iterable[float]) -> dict[Node, float]:
    """Multiplies the branches; returns the sums, and what they are multiplied by."""
    alpha_of = dict(zip(found.shortcuts, alphas))
    grown: dict[Node, float] = {}
    for shortcut in found.everything:
        factor = grown.get(origin_of_scale(shortcut.stream), 1.0) / alpha_of.get(shortcut, 1.0)
        grown[shortcut.addition.result] = factor
        for weight in _weights_once(found, shortcut) if factor != 1 else ():
            with torch.no_grad():
                if not torch.isfinite(weight.mul(factor)).all():
                    raise ValueError(f"weights would overflow in {weight.dtype}; convert the model to float32 first")
                weight.mul_(factor)
    return grown


def _weights_once(found: ShortcutSearch, shortcut: FoundShortcut) -> tuple[nn.Parameter, ...]:
    weights = last_weights(shortcut)
    where = shortcut.addition.module or "the model"
    if not weights or any(found.tracer.uses[id(weight)] > 1 for weight in weights):
        why = "is used more than once" if weights else "was not found"
        raise ValueError(f"{where}: the last layer of its branch {why}, so its shortcut cannot be folded")
    return weights


def _read_at(node: Node, grown: dict[Node, float]) -> set[float]:
    """What the sums that this node reads are multiplied by."""
    return {grown[origin] for parent in node.parents if (origin := origin_of_scale(parent)) in grown}


def _scale_norms(model: nn.Module, nodes: Iterable[Node], grown: dict[Node, float]) -> set[str]:
    """Scales the eps of every norm that reads a sum; returns their names.

    A norm is a module without children that has an eps, whether or not it has weights. One that reads sums of several
    factors cannot be right for all of them, and is left as it is.
    """
    factors: dict[str, set[float]] = {}
    for node in nodes:
        factors.setdefault(node.module, set()).update(_read_at(node, grown))
    scaled = set()
    for name, of_sums in factors.items():
        module: Any = model.get_submodule(name)
        eps = next((each for each in _EPS if isinstance(getattr(module, each, None), float)), None)
        if len(of_sums) == 1 and eps is not None and not list(module.children()):
            setattr(module, eps, getattr(module, eps) * of_sums.pop() ** 2)
            scaled.add(name)
    return scaled


def _obstacle(nodes: Iterable[Node], grown: dict[Node, float], norms: set[str]) -> str:
    """Why the folded model gives another output, if it does: the first read of a sum that is no such norm."""
    for node in nodes:
        read = node.floating and node not in grown and node.module not in norms and origin_of_scale(node) is node
        if read and _read_at(node, grown) - {1.0}:
            how = "a norm whose eps cannot be scaled" if node.name in _NORMS else "without a norm"
            return f"its stream is read by {node.name} in {node.module or 'the model'}, {how}"
    return "its output contains the stream itself, without a norm"
