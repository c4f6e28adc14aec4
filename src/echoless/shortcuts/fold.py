"""How does a faded encoder become a plain one, and back? By rescaling its weights, without changing its function.

In a pre-norm network x_l = a_l x_{l-1} + f_l(LN(x_{l-1})), let y_l = r_l x_l. LayerNorm ignores scale, so

    y_l = (a_l r_l / r_{l-1}) y_{l-1} + r_l f_l(LN(y_{l-1})):

the same function under other alphas b_l = a_l r_l / r_{l-1}, with branch l multiplied by r_l and the embeddings by r_0.
LayerNorm's eps scales with the square of its input's factor, and then the identity is exact.

One factor is free. We hold the output (r_L = 1), so the final features are equal before any norm, and folding
(b = 1) multiplies the embeddings and each branch by its weight in Eq. (4): weights only shrink, nothing overflows.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from echoless.shortcuts.fading import is_faded
from echoless.shortcuts.fold_faded import fold_faded
from echoless.shortcuts.residual import Faded, Shortcut


class PreNormBranch(NamedTuple):
    """One f_l(LN(x)): its norm, the linear that ends it, and the attribute that joins it to the stream."""

    norm: nn.Module
    output: nn.Linear
    owner: nn.Module
    name: str

    @property
    def shortcut(self) -> Shortcut:
        shortcut = getattr(self.owner, self.name)
        assert isinstance(shortcut, Shortcut)
        return shortcut


class PreNormNetwork(Protocol):
    """What `fold` requires of a network: its embeddings and its branches."""

    def embeddings(self) -> list[Tensor]: ...

    def branches(self) -> list[PreNormBranch]: ...


Network = TypeVar("Network", bound=PreNormNetwork)


def fold(network: Network, *, example: object = None) -> Network:
    """A copy with plain residual shortcuts that computes the same function.

    A model that `fade` rewrote needs an `example`, as `fade` did: it is traced to find its branches, and the copy is
    checked on it.
    """
    if isinstance(network, nn.Module) and is_faded(network):
        if example is None:
            raise ValueError("example is missing: give the input that fade was given")
        return fold_faded(network, example)
    if not hasattr(network, "branches"):
        raise ValueError(_refusal(network))
    folded = reschedule(network, [1.0] * len(network.branches()))
    if hasattr(folded, "name_plain_shortcuts"):  # where a config names the schedule, it must not name the old one
        folded.name_plain_shortcuts()
    return folded


def _refusal(network: object) -> str:
    kind = type(network).__name__
    if hasattr(getattr(network, "encoder", None), "branches"):
        return f"{kind} cannot be folded as a whole; allowed: .encoder of it"
    if isinstance(network, nn.Module) and not any(isinstance(each, Shortcut) for each in network.modules()):
        again = "if it was saved faded, restore it with fade_saved first"
        return f"{kind} has no faded shortcuts, so it is plain already; {again}"
    return f"{kind} cannot be folded; allowed: a pre-norm encoder with branches()"


def unfold(network: Network, alphas: Sequence[float]) -> Network:
    """The inverse of `fold`: a copy under these alphas that computes the same function."""
    return reschedule(network, alphas)


def reschedule(network: Network, alphas: Sequence[float]) -> Network:
    """A copy under other alphas that computes the same function, exactly up to rounding."""
    branches = network.branches()
    factors = stream_factors([_fixed_alpha(branch.shortcut) for branch in branches], alphas)
    _refuse_overflow(branches, factors)
    network = copy.deepcopy(network)
    with torch.no_grad():
        for tensor in network.embeddings():
            tensor.mul_(factors[0])
        for branch, before, after, alpha in zip(network.branches(), factors, factors[1:], alphas):
            branch.output.weight.mul_(after)
            if branch.output.bias is not None:
                branch.output.bias.mul_(after)
            if isinstance(branch.norm, nn.LayerNorm):
                branch.norm.eps *= before**2
            setattr(branch.owner, branch.name, Faded(float(alpha)))
    return network


# r_0 .. r_L of the identity above, with r_L = 1.
def stream_factors(old: Sequence[float], new: Sequence[float]) -> tuple[float, ...]:
    """By what the stream is multiplied, before the first branch and after each, when `old` alphas become `new`."""
    if len(old) != len(new):
        raise ValueError(f"{len(new)} alphas were given; allowed: {len(old)}, one per shortcut")
    if not all(alpha > 0 for alpha in (*old, *new)):
        raise ValueError("an alpha is 0; allowed: above 0, because a shortcut of weight 0 cannot be folded")
    factors = [1.0]
    for a, b in zip(reversed(old), reversed(new)):
        factors.append(factors[-1] * a / b)
    return tuple(reversed(factors))


def shortcut_record(variant: str, shortcuts: Sequence[Shortcut]) -> dict[str, Any]:
    """What must be equal before weights may be loaded: the variant and every alpha (none where they are learned)."""
    fixed = [float(shortcut.alpha) for shortcut in shortcuts if isinstance(shortcut.alpha, int | float)]
    # A standard residual network is one thing, whichever name it was given, and so is a faded one.
    if variant in ("faded", "identity"):
        variant = "identity" if all(alpha == 1.0 for alpha in fixed) else "faded"
    return {"variant": variant, "alphas": fixed}


def _fixed_alpha(shortcut: Shortcut) -> float:
    if isinstance(shortcut, Faded):
        return float(shortcut.alpha)
    kind = type(shortcut).__name__
    raise ValueError(f"a shortcut is {kind}; allowed: Faded, because only alpha * x + f(x) with a fixed alpha folds")


def _refuse_overflow(branches: Sequence[PreNormBranch], factors: Sequence[float]) -> None:
    for index, (branch, factor) in enumerate(zip(branches, factors[1:])):
        weight = branch.output.weight
        largest = float(weight.detach().abs().max()) * factor
        limits = torch.finfo(weight.dtype)
        if largest > limits.max or (weight.dtype == torch.float16 and 0 < largest < limits.smallest_normal):
            raise ValueError(
                f"branch {index} would reach {largest:.1e} in {weight.dtype}; allowed: {limits.smallest_normal:.1e} "
                f"to {limits.max:.1e}; convert the encoder to float32 first"
            )
