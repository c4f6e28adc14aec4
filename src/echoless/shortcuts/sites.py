"""Which source locations of which objects must be rewritten to fade a set of additions?

A trace lists executions of additions, a source has locations. One location may run many times: in a loop of one
method, where it takes one alpha after the other, or in several calls of one shared module, which must all have the
same alphas.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from echoless.shortcuts.rewrite import ALPHAS, CannotRewrite, Route, faded_class, source_of
from echoless.shortcuts.trace import Addition, FadedOperand


@dataclass
class _Change:
    target: Any
    name: str
    before: Any
    existed: bool


@dataclass
class Changes:
    """Attributes that were set, with their previous values. A deep copy of a model has a deep copy of them."""

    done: list[_Change] = field(default_factory=list)

    def set(self, target: Any, name: str, value: object) -> None:
        existed = name == "__class__" or name in vars(target)
        self.done.append(_Change(target, name, getattr(target, name) if existed else None, existed))
        setattr(target, name, value)

    def undo(self) -> None:
        while self.done:
            change = self.done.pop()
            if change.existed:
                setattr(change.target, change.name, change.before)
            else:
                delattr(change.target, change.name)


@dataclass
class Site:
    """One addition in the source of one object's method, with the alphas of its executions."""

    addition: Addition  # the first of them
    identity: int = -1  # 0 left, 1 right
    calls: dict[int, list[float]] = field(default_factory=dict)  # alphas in the order of execution, per call

    def alphas(self) -> float | tuple[float, ...]:
        per_call = [tuple(c) for c in self.calls.values()]
        if len({alpha for call in per_call for alpha in call}) == 1:
            return per_call[0][0]
        if len(set(per_call)) > 1:
            raise ValueError(
                f"{where(self.addition)}: `{source_of(self.addition.places[0])}` runs in {len(per_call)} calls of one "
                "module, which would need different alphas; use schedule='constant', or within= to leave it out"
            )
        return per_call[0]


def sites_of(additions: Sequence[Addition], faded: Mapping[int, FadedOperand]) -> list[Site]:
    """The source locations of the faded additions; `faded` is keyed by the index in `additions`."""
    sites: dict[object, Site] = {}
    chosen = {site_key(additions[i]) for i in faded}
    for i, addition in enumerate(additions):
        if (key := site_key(addition)) not in chosen:
            continue
        site = sites.setdefault(key, Site(addition))
        # Executions of a faded location that are no shortcuts keep alpha 1.
        identity, alpha = faded.get(i, FadedOperand(site.identity, 1.0))
        if -1 not in (site.identity, identity) and site.identity != identity:
            raise ValueError(
                f"{where(addition)}: `{source_of(addition.places[0])}` has its identity on the left in one execution "
                "and on the right in another, which cannot be rewritten; use within= to leave it out"
            )
        site.identity = max(site.identity, identity)
        site.calls.setdefault(addition.call, []).append(alpha)
    return list(sites.values())


def site_key(addition: Addition) -> object:
    return (*_owner_key(addition), addition.places)


def _owner_key(addition: Addition) -> tuple[int, str]:
    # An object that is not a module (an attention processor) may be shared by modules: each of them gets a copy.
    return id(addition.owner), "" if isinstance(addition.owner, nn.Module) else addition.module


def rewrite_sites(
    model: nn.Module, sites: Iterable[Site], changes: Changes
) -> list[tuple[Any, list[float | tuple[float, ...]]]]:
    """Assigns every owner its faded class; returns the owners with their alphas."""
    by_owner: dict[object, list[Site]] = {}
    for site in sites:
        by_owner.setdefault(_owner_key(site.addition), []).append(site)
    classes: dict[object, type] = {}
    targets = []
    for group in by_owner.values():
        coefficients = [site.alphas() for site in group]
        routes = tuple(Route(s.addition.places, s.identity, isinstance(c, tuple)) for s, c in zip(group, coefficients))
        try:
            target = _target(model, group[0].addition, changes)
            key = type(target), routes
            if key not in classes:
                classes[key] = faded_class(type(target), routes)
            changes.set(target, "__class__", classes[key])
        except (CannotRewrite, TypeError) as error:
            first = group[0].addition
            raise ValueError(
                f"{where(first)}: `{source_of(first.places[0])}` is a shortcut, but its addition cannot be rewritten: "
                f"{error}; use within= to leave it out"
            ) from error
        targets.append((target, coefficients))
    return targets


def _target(model: nn.Module, addition: Addition, changes: Changes) -> Any:
    owner = addition.owner
    if owner is None:
        raise CannotRewrite("it does not run in a method of an object")
    name = addition.places[-1].code.co_name
    if name in vars(owner):
        raise CannotRewrite(f"the object's own attribute {name!r} hides the method of its class")
    if isinstance(owner, nn.Module):
        return owner
    holder = model.get_submodule(addition.module)
    names = [name for name, value in vars(holder).items() if value is owner]
    if not names:
        raise CannotRewrite(f"it runs in a {type(owner).__name__} that is no attribute of a module")
    changes.set(holder, names[0], copy.copy(owner))
    return getattr(holder, names[0])


def disable_fused_paths(model: nn.Module, changes: Changes) -> None:
    """Disables the fused kernel of torch's encoder layer in eval mode, which would ignore the alphas."""
    faded = [m for m in model.modules() if isinstance(m, nn.TransformerEncoderLayer) and _fades(m)]
    for layer in faded:
        changes.set(layer, "activation_relu_or_gelu", 0)
    for module in model.modules():
        if isinstance(module, nn.TransformerEncoder) and any(layer in faded for layer in module.layers):
            changes.set(module, "use_nested_tensor", False)


def _fades(module: nn.Module) -> bool:
    return any(ones_like(alpha) != alpha for alpha in getattr(module, ALPHAS, ()))


def ones_like(alpha: float | tuple[float, ...]) -> float | tuple[float, ...]:
    return (1.0,) * len(alpha) if isinstance(alpha, tuple) else 1.0


def where(addition: Addition) -> str:
    return addition.module or "the model"
