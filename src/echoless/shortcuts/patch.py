"""How are the shortcuts of a model that somebody else wrote faded, and how is that undone?

`decay_shortcuts` traces one forward of an example (trace.py), tells shortcuts from other additions (find.py), rewrites
them in place (rewrite.py) and proves on the example that it changed what it meant to and nothing else (check.py).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Literal, get_args

from torch import Tensor, nn

from echoless.shortcuts.check import Probe, close, equal_bits
from echoless.shortcuts.find import Extra, FoundShortcut, Other, find_shortcuts
from echoless.shortcuts.report import FadedShortcut, LeftAlone, PatchReport, read_saved
from echoless.shortcuts.rewrite import ALPHAS, operand_source, source_of
from echoless.shortcuts.schedule import Fade, Schedule, alphas, choose_alpha_min
from echoless.shortcuts.sites import (
    Changes,
    Site,
    leave_fused_paths,
    ones_like,
    rewrite_sites,
    site_key,
    sites_of,
)
from echoless.shortcuts.trace import FadedOperand
from echoless.shortcuts.zero import zero_last_layers

_RECORD = "faded_shortcuts"  # the attribute of a patched model that holds what `undo` needs


def decay_shortcuts(
    model: nn.Module,
    alpha_min: float | Literal["auto"] = "auto",
    *,
    example: object,
    schedule: Schedule = "linear",
    fade: Fade = "both",
    within: str | Sequence[str] | None = None,
    zero_init: bool = False,
    include: Extra | Collection[Extra] = (),
) -> PatchReport:
    """Fades the residual shortcuts of any PyTorch model, in place: x + f(x) becomes alpha * x + f(x).

    example: what one forward needs; a tensor, a tuple of arguments, or a dict of keyword arguments.
    within: only shortcuts in these modules: a name ("encoder.layer") or a pattern ("blocks.1?").
    fade: with "attention" or "mlp", only shortcuts around such a branch fade; the others keep alpha 1 and their place.
    zero_init: the last linear or convolution of every faded branch starts at zero.
    include: also fade "projections" (a ResNet's downsampling shortcuts) and "long skips" (around other shortcuts).

    Parameters, buffers and the state dict are untouched (but for zero_init); pass the model before `torch.compile`.
    Each call proves on the example, in eval mode, that the rewritten model with every alpha at 1 gives the same bits,
    and with its alphas the numbers of an independent computation; otherwise it undoes itself and raises.
    """
    extras = _checked_include(include)
    _refuse_unfit(model)
    alphas(shortcuts=2, alpha_min=alpha_min, schedule=schedule)  # bad values, before any work
    if fade not in get_args(Fade):
        raise ValueError(f"fade is {fade!r}; allowed: {', '.join(get_args(Fade))}")
    found = _Found(model, example, within, extras)
    values, rule = _assign([s.kind for s in found.shortcuts], alpha_min, schedule, fade)
    return _patch(model, found, values, rule, zero_init)


def apply_saved(model: nn.Module, path: str | os.PathLike[str], *, example: object) -> PatchReport:
    """Fades a fresh model with the alphas that `PatchReport.save` wrote; its shortcuts must be the same ones."""
    saved = read_saved(path)
    _refuse_unfit(model)
    found = _Found(model, example, saved.within, _checked_include(saved.include))
    here, there = [s.addition.module for s in found.shortcuts], [s.where for s in saved.shortcuts]
    if here != there:
        raise ValueError(
            f"{os.fspath(path)} holds alphas for {len(there)} shortcuts ({_span(there)}), but the model has "
            f"{len(here)} ({_span(here)}); allowed: a model of the kind that it was made for"
        )
    values = [shortcut.alpha for shortcut in saved.shortcuts]
    return _patch(model, found, values, f"Alphas from {os.fspath(path)}.", zero_init=False)


def undo(model: nn.Module) -> None:
    """Makes a patched model what it was before. Weights keep their values."""
    holders = [module for module in model.modules() if _RECORD in vars(module)]
    if not holders:
        raise ValueError(f"{type(model).__name__} has no faded shortcuts to undo")
    for holder in holders:
        vars(holder).pop(_RECORD).undo()


class _Found:
    """The shortcuts to fade, in the order in which they run, and the additions to leave alone."""

    def __init__(
        self, model: nn.Module, example: object, within: str | Sequence[str] | None, include: frozenset[str]
    ) -> None:
        patterns = _checked_within(model, within)
        self.within, self.include = None if within is None else patterns, tuple(sorted(include))
        self.probe = Probe(model, example)
        self.plain = self.probe.run()
        self.tracer, traced = self.probe.trace()
        if not close(traced, self.plain):
            raise ValueError(
                f"{type(model).__name__} gives two different outputs for one example and one random seed, so that "
                "nothing could be checked; allowed: a model that is deterministic in eval mode"
            )
        everything, self.others = find_shortcuts(self.tracer.nodes, self.tracer.additions, include)
        self.shortcuts = [s for s in everything if _is_within(s.addition.module, patterns)]
        self.others += [Other(s.addition, "outside within=") for s in everything if s not in self.shortcuts]
        self._refuse_nothing(model, within, len(everything))
        self.training_repeats = False
        self.training = self._in_training(patterns, include)

    def _refuse_nothing(self, model: nn.Module, within: object, everywhere: int) -> None:
        if self.shortcuts:
            return
        if everywhere:
            raise ValueError(
                f"within is {within!r}, where there is no shortcut; {everywhere} are elsewhere in the model"
            )
        reasons = sorted({other.reason for other in self.others})
        why = f": {'; '.join(reasons)}" if reasons else " because no two tensors are added in it"
        raise ValueError(f"no shortcut was found in {type(model).__name__}{why}")

    def _in_training(self, patterns: Sequence[str], include: frozenset[str]) -> list[FoundShortcut]:
        """The same shortcuts as training mode computes them, perhaps on other lines; none where they differ."""
        try:
            tracer, traced = self.probe.trace(training=True)
            self.training_repeats = close(self.probe.run(training=True), traced)
        except ValueError:  # batch norm refuses some examples; eval mode is then all there is to see
            return []
        everything, _ = find_shortcuts(tracer.nodes, tracer.additions, include)
        shortcuts = [s for s in everything if _is_within(s.addition.module, patterns)]
        if [s.addition.module for s in shortcuts] == [s.addition.module for s in self.shortcuts]:
            return shortcuts
        known = {site_key(s.addition) for s in self.shortcuts}
        reason = "runs in training only, and its place among the shortcuts of eval mode is unclear"
        self.others += [Other(s.addition, reason) for s in shortcuts if site_key(s.addition) not in known]
        return []

    def sites(self, values: Sequence[float]) -> list[Site]:
        """The places to rewrite: those of eval mode, and those that only training mode runs."""
        known = {site_key(s.addition) for s in self.shortcuts}
        new = [(s, alpha) for s, alpha in zip(self.training, values) if site_key(s.addition) not in known]
        additions = [*self.tracer.additions, *(s.addition for s, _ in new)]
        faded = _operands(self.shortcuts, values)
        for i, (shortcut, alpha) in enumerate(new, start=len(self.tracer.additions)):
            faded[i] = FadedOperand(shortcut.identity, alpha)
        return sites_of(additions, faded)

    def faded_outputs(self, values: Sequence[float]) -> dict[bool, list[Tensor]]:
        """What the faded model must give in eval mode and, where it can be known, in training mode."""
        modes = {False: self.shortcuts, True: self.training}
        return {
            training: self.probe.trace(training=training, fades=_operands(shortcuts, values))[1]
            for training, shortcuts in modes.items()
            if shortcuts and (self.training_repeats or not training)
        }


def _operands(shortcuts: Sequence[FoundShortcut], values: Sequence[float]) -> dict[int, FadedOperand]:
    return {s.addition.order: FadedOperand(s.identity, alpha) for s, alpha in zip(shortcuts, values)}


def _patch(model: nn.Module, found: _Found, values: Sequence[float], rule: str, zero_init: bool) -> PatchReport:
    changes = Changes()
    try:
        _rewrite_and_check(model, found, values, changes)
    except Exception:
        changes.undo()
        raise
    setattr(model, _RECORD, changes)
    zeroed, not_zeroed = zero_last_layers(model, found.tracer, found.shortcuts) if zero_init else ((), ())
    faded = tuple(_describe(s, alpha) for s, alpha in zip(found.shortcuts, values))
    return PatchReport(
        model=type(model).__name__,
        shortcuts=faded,
        left_alone=_grouped(found.others),
        rule=rule,
        within=found.within,
        include=found.include,
        zeroed=zeroed,
        not_zeroed=not_zeroed,
    )


def _rewrite_and_check(model: nn.Module, found: _Found, values: Sequence[float], changes: Changes) -> None:
    expected = found.faded_outputs(values)
    targets = rewrite_sites(model, found.sites(values), changes)
    for target, coefficients in targets:
        changes.set(target, ALPHAS, tuple(ones_like(c) for c in coefficients))
    if not equal_bits(found.probe.run(), found.plain):
        raise ValueError(
            f"{type(model).__name__} rewritten with every alpha at 1 does not give the bits it gave before (is it "
            "deterministic?); the model is unchanged"
        )
    for target, coefficients in targets:
        setattr(target, ALPHAS, tuple(coefficients))
    leave_fused_paths(model, changes)
    for training, outputs in expected.items():
        if not close(found.probe.run(training=training), outputs):
            raise ValueError(
                f"{type(model).__name__} rewritten does not give what its faded additions should in "
                f"{'training' if training else 'eval'} mode (does it run other code when it is not traced?); the "
                "model is unchanged"
            )


# --- which alphas, and in which modules ---


def _assign(
    kinds: Sequence[str], alpha_min: float | Literal["auto"], schedule: Schedule, fade: Fade
) -> tuple[tuple[float, ...], str]:
    count = len(kinds)
    if fade == "both":
        rule = choose_alpha_min(shortcuts=count, schedule=schedule).rule + "." if alpha_min == "auto" else ""
        return alphas(shortcuts=count, alpha_min=alpha_min, schedule=schedule), rule
    if fade not in kinds:
        raise ValueError(f"fade is {fade!r}, but none of the {count} shortcuts found is around such a branch")
    if list(kinds) == ["attention", "mlp"] * (count // 2):
        depth = count // 2
        rule = choose_alpha_min(depth, schedule=schedule, fade=fade).rule + "." if alpha_min == "auto" else ""
        return alphas(depth, alpha_min=alpha_min, schedule=schedule, fade=fade), rule
    if alpha_min == "auto":
        raise ValueError(
            f"alpha_min is 'auto' with fade={fade!r}, but attention and MLP do not alternate in this model; allowed: "
            "a number in [0, 1]"
        )
    values = alphas(shortcuts=count, alpha_min=alpha_min, schedule=schedule)
    return tuple(value if kind == fade else 1.0 for value, kind in zip(values, kinds)), ""


def _refuse_unfit(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ValueError(f"model is a {type(model).__name__}; allowed: a torch.nn.Module")
    if hasattr(model, "_orig_mod"):
        raise ValueError("model is compiled already; allowed: fade its shortcuts first, then call torch.compile")
    if any(_RECORD in vars(module) for module in model.modules()):
        raise ValueError(f"the shortcuts of {type(model).__name__} are faded already; allowed: undo(model) first")


def _checked_include(include: str | Collection[str]) -> frozenset[str]:
    chosen = frozenset({include} if isinstance(include, str) else include)
    if unknown := chosen - set(get_args(Extra)):
        raise ValueError(f"include has {sorted(unknown)[0]!r}; allowed: {', '.join(get_args(Extra))}")
    return chosen


def _checked_within(model: nn.Module, within: str | Sequence[str] | None) -> tuple[str, ...]:
    patterns = ("*",) if within is None else (within,) if isinstance(within, str) else tuple(within)
    names = [name for name, _ in model.named_modules() if name]
    for pattern in patterns:
        if within is not None and not any(fnmatchcase(name, pattern) for name in names):
            near = difflib.get_close_matches(pattern, names, n=3, cutoff=0.3)
            hint = f"; the nearest are {', '.join(near)}" if near else ""
            raise ValueError(f"within is {pattern!r}, which matches no module of {type(model).__name__}{hint}")
    return patterns


def _is_within(name: str, patterns: Sequence[str]) -> bool:
    parts = name.split(".")
    outer = [".".join(parts[: i + 1]) for i in range(len(parts))]
    return any(fnmatchcase(part, pattern) for part in outer for pattern in patterns)


# --- words ---


def _describe(shortcut: FoundShortcut, alpha: float) -> FadedShortcut:
    addition, place = shortcut.addition, shortcut.addition.places[0]
    side = ("left", "right")[shortcut.identity]
    identity = f"{operand_source(place, shortcut.identity)} ({side})"
    return FadedShortcut(addition.module, source_of(place), identity, shortcut.kind, alpha)


def _grouped(others: Iterable[Other]) -> tuple[LeftAlone, ...]:
    groups: dict[tuple[str, str], list[str]] = {}
    for other in others:
        key = source_of(other.addition.places[0]), other.reason
        groups.setdefault(key, []).append(other.addition.module)
    return tuple(LeftAlone(where[0], add, reason, len(where)) for (add, reason), where in groups.items())


def _span(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}"
