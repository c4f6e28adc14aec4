"""How are the residual shortcuts of any PyTorch model faded, and how are they restored?

`fade` traces one forward on an example (trace.py), separates shortcuts from other additions (find.py), rewrites the
shortcuts in place (rewrite.py) and checks the outputs on the example: unchanged at alpha 1, and equal to an independent
computation at the alphas asked for (check.py).
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from torch import Tensor, nn

from echoless.shortcuts.check import ExampleRunner, close, equal_bits, refuse_not_finite
from echoless.shortcuts.find import Extra, FoundShortcut, Other, find_shortcuts
from echoless.shortcuts.report import FadedShortcut, FadeReport, LeftAlone
from echoless.shortcuts.rewrite import ALPHAS, operand_source, source_of
from echoless.shortcuts.saved import read_saved
from echoless.shortcuts.schedule import Fade, Schedule, alphas, choose_alpha_min
from echoless.shortcuts.sites import (
    Changes,
    Site,
    disable_fused_paths,
    ones_like,
    rewrite_sites,
    site_key,
    sites_of,
)
from echoless.shortcuts.trace import FadedOperand
from echoless.shortcuts.travel import attach_record, detach_record, record_of
from echoless.shortcuts.zero import zero_last_layers

_RECORD = "faded_shortcuts"  # attribute of a faded model: the changes that `unfade` reverts


def fade(
    model: nn.Module,
    alpha_min: float | Literal["auto"] = "auto",
    *,
    example: object,
    schedule: Schedule = "linear",
    around: Fade = "both",
    within: str | Sequence[str] | None = None,
    zero_init: bool = False,
    include: Extra | Collection[Extra] = (),
) -> FadeReport:
    """Fades the residual shortcuts of a model in place: x + f(x) becomes alpha * x + f(x).

    alpha_min: coefficient of the last shortcut; "auto" derives it from the number of shortcuts (`alpha_min_for`).
    example: input of one forward: a tensor, a tuple of positional arguments, or a dict of keyword arguments.
    schedule: how alpha falls from 1 at the first shortcut to alpha_min at the last.
    around: fade shortcuts around "attention", around "mlp", or "both"; the others keep alpha 1 and their position.
    within: restrict to these modules, by name ("encoder.layer") or pattern ("blocks.1?").
    zero_init: set the last linear or convolution of every faded branch to zero.
    include: also fade "projections" (a ResNet's downsampling shortcuts) or "long skips" (around other shortcuts).

    Parameters do not change (except by zero_init). The alphas become an entry of the state dict (travel.py), so that
    the weights cannot be loaded without them: `fade_saved` restores both. Fade before `torch.compile`.
    Every call checks the model on the example: with every alpha at 1 its output is equal bit for bit, and with its
    alphas it agrees with an independent computation; otherwise the model is restored and ValueError is raised.

    >>> from torch import nn, ones
    >>> class Block(nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.mlp = nn.Linear(8, 8)
    ...     def forward(self, x):
    ...         return x + self.mlp(x)
    >>> model = nn.Sequential(Block(), Block(), Block())
    >>> report = fade(model, alpha_min=0.5, example=ones(1, 8))
    >>> report.alphas
    (1.0, 0.75, 0.5)
    >>> report.shortcuts[1]
    FadedShortcut(where='1', add='x + self.mlp(x)', identity='x (left)', kind='mlp', alpha=0.75)
    """
    extras = _checked_include(include)
    _refuse_unfit(model)
    alphas(shortcuts=2, alpha_min=alpha_min, schedule=schedule)  # refuses bad values before any work
    if around not in get_args(Fade):
        raise ValueError(f"around is {around!r}; allowed: {', '.join(get_args(Fade))}")
    found = ShortcutSearch(model, example, within, extras)
    values, rule = _assign([s.kind for s in found.shortcuts], alpha_min, schedule, around)
    return _apply(model, found, values, rule, zero_init)


def fade_saved(model: nn.Module, saved: str | os.PathLike[str] | Mapping[str, Any], *, example: object) -> FadeReport:
    """Fades a model as one with the same shortcuts was faded before it was saved.

    saved: the state dict of the faded model, the folder that `save_pretrained` wrote (of transformers or diffusers), a
    .safetensors file of its weights, or the file that `FadeReport.save` wrote. The weights are loaded separately:
    before, with `from_pretrained`, or afterwards, with `load_state_dict`.

    >>> from tempfile import mkdtemp
    >>> from torch import nn, ones
    >>> class Block(nn.Linear):
    ...     def forward(self, x):
    ...         return x + super().forward(x)
    >>> first, second = (nn.Sequential(Block(8, 8), Block(8, 8)) for _ in range(2))
    >>> path = mkdtemp() + "/alphas.json"
    >>> fade(first, alpha_min=0.6, example=ones(1, 8)).save(path)
    >>> fade_saved(second, path, example=ones(1, 8)).alphas
    (1.0, 0.6)
    """
    name = "the state dict" if isinstance(saved, Mapping) else os.fspath(saved)
    record = record_of(saved) if isinstance(saved, Mapping) else read_saved(saved)
    _refuse_unfit(model)
    found = ShortcutSearch(model, example, record.within, _checked_include(record.include))
    here, there = [s.addition.module for s in found.shortcuts], [s.where for s in record.shortcuts]
    if here != there:
        raise ValueError(
            f"{name} holds alphas for {len(there)} shortcuts ({_span(there)}), but the model has "
            f"{len(here)} ({_span(here)}); the model must have the same shortcuts"
        )
    values = [shortcut.alpha for shortcut in record.shortcuts]
    return _apply(model, found, values, f"Alphas from {name}.", zero_init=False)


def unfade(model: nn.Module) -> None:
    """Reverts `fade`: classes and attributes are restored, weights keep their values.

    >>> from torch import equal, nn, ones
    >>> class Block(nn.Linear):
    ...     def forward(self, x):
    ...         return x + super().forward(x)
    >>> model, x = Block(8, 8), ones(1, 8)
    >>> before = model(x)
    >>> report = fade(model, alpha_min=0.5, example=x)
    >>> equal(model(x), before)
    False
    >>> unfade(model)
    >>> equal(model(x), before)
    True
    """
    holders = [module for module in model.modules() if _RECORD in vars(module)]
    if not holders:
        raise ValueError(f"{type(model).__name__} has no faded shortcuts")
    for holder in holders:
        vars(holder).pop(_RECORD).undo()
        detach_record(holder)


def is_faded(model: nn.Module) -> bool:
    """Whether `fade` rewrote this model (and not only a part of it)."""
    return _RECORD in vars(model)


class ShortcutSearch:
    """The shortcuts to fade, in order of execution, and the additions that are left alone."""

    def __init__(
        self, model: nn.Module, example: object, within: str | Sequence[str] | None, include: frozenset[str]
    ) -> None:
        patterns = _checked_within(model, within)
        self.within, self.include = None if within is None else patterns, tuple(sorted(include))
        self.runner = ExampleRunner(model, example)
        self.plain = self.runner.run()
        refuse_not_finite(type(model).__name__, example, self.plain)
        self.tracer, traced = self.runner.trace()
        if not close(traced, self.plain):
            raise ValueError(
                f"{type(model).__name__} gives two different outputs for the same example and random seed; fade needs "
                "a model that is deterministic in eval mode"
            )
        self.everything, self.others = find_shortcuts(self.tracer.nodes, self.tracer.additions, include)
        self.shortcuts = [s for s in self.everything if _is_within(s.addition.module, patterns)]
        self.others += [Other(s.addition, "outside within=") for s in self.everything if s not in self.shortcuts]
        self._refuse_nothing(model, within, len(self.everything))
        self.training: list[FoundShortcut] = []  # the same, as training mode executes them; none where they differ
        self.training_repeats = False  # whether two runs in training mode give the same output
        self._trace_training(patterns, include)

    def _refuse_nothing(self, model: nn.Module, within: object, everywhere: int) -> None:
        if self.shortcuts:
            return
        if everywhere:
            raise ValueError(
                f"within is {within!r}, which contains no shortcut; the rest of the model has {everywhere}"
            )
        reasons = sorted({other.reason for other in self.others})
        why = f": {'; '.join(reasons)}" if reasons else " because no two tensors are added in it"
        raise ValueError(f"no shortcut was found in {type(model).__name__}{why}")

    def _trace_training(self, patterns: Sequence[str], include: frozenset[str]) -> None:
        """Training mode may execute the shortcuts by other source lines, and some that eval mode does not have."""
        try:
            tracer, traced = self.runner.trace(training=True)
            self.training_repeats = close(self.runner.run(training=True), traced)
        except ValueError:  # batch norm in training mode refuses some examples; only eval mode is then traced
            return
        everything, _ = find_shortcuts(tracer.nodes, tracer.additions, include)
        shortcuts = [s for s in everything if _is_within(s.addition.module, patterns)]
        if [s.addition.module for s in shortcuts] == [s.addition.module for s in self.shortcuts]:
            self.training = shortcuts
            return
        known = {site_key(s.addition) for s in self.shortcuts}
        reason = "runs in training mode only, and has no counterpart among the shortcuts of eval mode"
        self.others += [Other(s.addition, reason) for s in shortcuts if site_key(s.addition) not in known]

    def sites(self, values: Sequence[float]) -> list[Site]:
        """The source locations to rewrite: those of eval mode, and those that only training mode runs."""
        known = {site_key(s.addition) for s in self.shortcuts}
        new = [(s, alpha) for s, alpha in zip(self.training, values) if site_key(s.addition) not in known]
        additions = [*self.tracer.additions, *(s.addition for s, _ in new)]
        faded = _operands(self.shortcuts, values)
        for i, (shortcut, alpha) in enumerate(new, start=len(self.tracer.additions)):
            faded[i] = FadedOperand(shortcut.identity, alpha)
        return sites_of(additions, faded)

    def faded_outputs(self, values: Sequence[float]) -> dict[bool, list[Tensor]]:
        """The outputs expected of the faded model, in eval mode and, where it is reproducible, in training mode."""
        modes = {False: self.shortcuts, True: self.training}
        return {
            training: self.runner.trace(training=training, fades=_operands(shortcuts, values))[1]
            for training, shortcuts in modes.items()
            if shortcuts and (self.training_repeats or not training)
        }


def _operands(shortcuts: Sequence[FoundShortcut], values: Sequence[float]) -> dict[int, FadedOperand]:
    return {s.addition.order: FadedOperand(s.identity, alpha) for s, alpha in zip(shortcuts, values)}


def _apply(model: nn.Module, found: ShortcutSearch, values: Sequence[float], rule: str, zero_init: bool) -> FadeReport:
    changes = Changes()
    try:
        _rewrite_and_check(model, found, values, changes)
    except Exception:
        changes.undo()
        raise
    setattr(model, _RECORD, changes)
    zeroed, not_zeroed = zero_last_layers(model, found.tracer, found.shortcuts) if zero_init else ((), ())
    faded = tuple(_describe(s, alpha) for s, alpha in zip(found.shortcuts, values))
    report = FadeReport(
        model=type(model).__name__,
        shortcuts=faded,
        left_alone=_grouped(found.others),
        rule=rule,
        within=found.within,
        include=found.include,
        zeroed=zeroed,
        not_zeroed=not_zeroed,
    )
    attach_record(model, report)
    return report


def _rewrite_and_check(model: nn.Module, found: ShortcutSearch, values: Sequence[float], changes: Changes) -> None:
    expected = found.faded_outputs(values)
    targets = rewrite_sites(model, found.sites(values), changes)
    for target, coefficients in targets:
        changes.set(target, ALPHAS, tuple(ones_like(c) for c in coefficients))
    if not equal_bits(found.runner.run(), found.plain):
        raise ValueError(
            f"{type(model).__name__} rewritten with every alpha at 1 does not reproduce its output bit for bit (is it "
            "deterministic?); the model is restored"
        )
    for target, coefficients in targets:
        setattr(target, ALPHAS, tuple(coefficients))
    disable_fused_paths(model, changes)
    for training, outputs in expected.items():
        if not close(found.runner.run(training=training), outputs):
            raise ValueError(
                f"{type(model).__name__} rewritten does not give the output of the faded additions in "
                f"{'training' if training else 'eval'} mode (does it run other code when it is not traced?); the "
                "model is restored"
            )


# --- which alphas, and in which modules ---


def _assign(
    kinds: Sequence[str], alpha_min: float | Literal["auto"], schedule: Schedule, around: Fade
) -> tuple[tuple[float, ...], str]:
    count = len(kinds)
    if around == "both":
        rule = choose_alpha_min(shortcuts=count, schedule=schedule).rule + "." if alpha_min == "auto" else ""
        return alphas(shortcuts=count, alpha_min=alpha_min, schedule=schedule), rule
    if around not in kinds:
        raise ValueError(f"around is {around!r}, but none of the {count} shortcuts found has such a branch")
    if list(kinds) == ["attention", "mlp"] * (count // 2):
        depth = count // 2
        rule = choose_alpha_min(depth, schedule=schedule, fade=around).rule + "." if alpha_min == "auto" else ""
        return alphas(depth, alpha_min=alpha_min, schedule=schedule, fade=around), rule
    if alpha_min == "auto":
        raise ValueError(
            f"alpha_min is 'auto' with around={around!r}, but attention and MLP do not alternate in this model; give "
            "alpha_min a number in [0, 1]"
        )
    values = alphas(shortcuts=count, alpha_min=alpha_min, schedule=schedule)
    return tuple(value if kind == around else 1.0 for value, kind in zip(values, kinds)), ""


def _refuse_unfit(model: nn.Module) -> None:
    if not isinstance(model, nn.Module):
        raise ValueError(f"model is a {type(model).__name__}; allowed: a torch.nn.Module")
    if hasattr(model, "_orig_mod"):
        raise ValueError("model is compiled already; call fade first, then torch.compile")
    if any(_RECORD in vars(module) for module in model.modules()):
        raise ValueError(f"the shortcuts of {type(model).__name__} are faded already; call unfade(model) first")


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


# --- what the report says ---


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
