"""What is alpha at every shortcut?

A schedule is a tuple of Python floats, one per shortcut, in the order in which the stream passes them: attention, MLP,
attention, MLP, ... It needs no tensor and adds no parameter; alpha_min is the method's only hyper-parameter.

Equation numbers are those of arXiv:2404.10947.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Literal, NamedTuple, get_args

Schedule = Literal["linear", "cosine", "constant"]
Per = Literal["sublayer", "block"]
Fade = Literal["both", "attention", "mlp"]

RECOMMENDED_EFFECTIVE = 3e-3  # inside [1e-3, 1e-2), where Table 2 finds the best probes at every depth
LOWEST_AUTO_ALPHA_MIN = 0.5  # below it the paper saw unstable training (alpha_min <= 0.4)

# How far a schedule has fallen from 1 (value 0) to alpha_min (value 1) at relative depth t in [0, 1].
_FALL: dict[str, Callable[[float], float]] = {
    "linear": lambda t: t,
    "cosine": lambda t: (1 - math.cos(math.pi * t)) / 2,
    "constant": lambda t: 1.0,
}


# Eq. (5), arXiv:2404.10947, in both readings.
def alphas(
    depth: int | None = None,
    *,
    shortcuts: int | None = None,
    alpha_min: float | Literal["auto"] = "auto",
    schedule: Schedule = "linear",
    per: Per = "sublayer",
    fade: Fade = "both",
) -> tuple[float, ...]:
    """One coefficient per shortcut: 2 * depth of them for a transformer, or `shortcuts` of them for another network.

    per="sublayer": the authors' code. Evenly spaced over all shortcuts; the first is exactly 1, the last alpha_min.
    per="block": the equation as printed. Block l = 1..L has 1 - (1 - alpha_min) l / L, used for both its shortcuts.
    fade: which shortcuts fade (Table 3b); the others stay 1 and the positions do not move.
    alpha_min="auto": that of `alpha_min_for(depth)`, but never below the lowest value found stable.

    >>> alphas(shortcuts=3, alpha_min=0.5)
    (1.0, 0.75, 0.5)
    >>> alphas(2, alpha_min=0.5, per="block")
    (0.75, 0.75, 0.5, 0.5)
    >>> alphas(2, alpha_min=0.5, schedule="constant", fade="mlp")
    (1.0, 0.5, 1.0, 0.5)
    """
    count = _count(depth, shortcuts)
    _check(schedule, per, fade, only_sublayers=depth is None)
    if alpha_min == "auto":
        alpha_min = choose_alpha_min(depth, shortcuts=shortcuts, schedule=schedule, per=per, fade=fade).alpha_min
    if not _is_number(alpha_min) or not 0.0 <= alpha_min <= 1.0:
        raise ValueError(f"alpha_min is {alpha_min!r}; allowed: a number in [0, 1], or 'auto'")
    return _coefficients(count, float(alpha_min), schedule, per, fade)


def _coefficients(count: int, alpha_min: float, schedule: Schedule, per: Per, fade: Fade) -> tuple[float, ...]:
    if per == "sublayer":
        # A lone shortcut is the last one, so it gets alpha_min.
        places = [i / (count - 1) for i in range(count)] if count > 1 else [1.0]
    else:
        blocks = count // 2
        places = [(i // 2 + 1) / blocks for i in range(count)]
    fading = {"both": (0, 1), "attention": (0,), "mlp": (1,)}[fade]
    # Written so that both ends are exact: fall 0 gives 1, fall 1 gives alpha_min.
    falls = [_FALL[schedule](t) for t in places]
    values = [(1.0 - fall) + fall * alpha_min for fall in falls]
    return tuple(value if i % 2 in fading else 1.0 for i, value in enumerate(values))


# The last line of section 3.1, arXiv:2404.10947: alpha_eff = prod_l alpha_l.
def effective_alpha(alphas: Sequence[float]) -> float:
    """The weight with which the input reaches the output through all shortcuts.

    >>> effective_alpha((1.0, 0.5, 0.5))
    0.25
    """
    return math.prod(alphas)


# Eq. (4), arXiv:2404.10947.
def contributions(alphas: Sequence[float]) -> tuple[float, ...]:
    """The weights with which the input (first) and each branch (in order) reach the output.

    Entry 0 is the product of all alphas, entry l the product of the alphas after branch l; the last is exactly 1.

    >>> contributions((1.0, 0.5, 0.5))
    (0.25, 0.25, 0.5, 1.0)
    """
    return tuple(accumulate(reversed(alphas), lambda product, alpha: product * alpha, initial=1.0))[::-1]


# Table 2, arXiv:2404.10947: the effective alpha, not alpha_min, is what stays the same across depths.
def alpha_min_for(
    depth: int | None = None,
    effective: float = RECOMMENDED_EFFECTIVE,
    *,
    shortcuts: int | None = None,
    schedule: Schedule = "linear",
    per: Per = "sublayer",
    fade: Fade = "both",
) -> float:
    """The alpha_min whose effective alpha is `effective`: the inverse of `effective_alpha(alphas(...))`.

    >>> round(alpha_min_for(12), 3), round(alpha_min_for(24), 3)
    (0.59, 0.777)
    """
    count = _count(depth, shortcuts)
    _check(schedule, per, fade, only_sublayers=depth is None)
    if not _is_number(effective) or not 0.0 < effective <= 1.0:
        raise ValueError(f"effective is {effective!r}; allowed: a number in (0, 1]")

    # The product rises strictly with alpha_min, from 0 to 1: bisect until the interval is two neighbouring floats.
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if effective_alpha(_coefficients(count, middle, schedule, per, fade)) < effective:
            low = middle
        else:
            high = middle
    return high


class AlphaChoice(NamedTuple):
    """What `alpha_min="auto"` came to, and the rule that decided."""

    alpha_min: float
    effective: float
    rule: str


def choose_alpha_min(
    depth: int | None = None,
    *,
    shortcuts: int | None = None,
    schedule: Schedule = "linear",
    per: Per = "sublayer",
    fade: Fade = "both",
) -> AlphaChoice:
    """`alpha_min_for` at the recommended effective alpha, but never below the lowest value found stable."""
    count = _count(depth, shortcuts)
    wanted = alpha_min_for(depth, shortcuts=shortcuts, schedule=schedule, per=per, fade=fade)
    chosen = max(wanted, LOWEST_AUTO_ALPHA_MIN)
    effective = effective_alpha(_coefficients(count, chosen, schedule, per, fade))
    if chosen == wanted:
        rule = f"alpha_min {chosen:.4g} gives {count} shortcuts the recommended effective alpha {effective:.1e}"
    else:
        rule = (
            f"alpha_min {chosen:.4g} is the floor: {count} shortcuts would need {wanted:.4g} for an effective alpha of "
            f"{RECOMMENDED_EFFECTIVE:.0e}, and get {effective:.1e}"
        )
    return AlphaChoice(chosen, effective, rule)


def _count(depth: int | None, shortcuts: int | None) -> int:
    if (depth is None) == (shortcuts is None):
        raise ValueError(f"depth is {depth!r} and shortcuts is {shortcuts!r}; allowed: exactly one of the two")
    name, value = ("depth", depth) if depth is not None else ("shortcuts", shortcuts)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} is {value!r}; allowed: a whole number, 1 or more")
    return 2 * value if name == "depth" else value


def _check(schedule: str, per: str, fade: str, *, only_sublayers: bool) -> None:
    for name, value, allowed in (
        ("schedule", schedule, get_args(Schedule)),
        ("per", per, get_args(Per)),
        ("fade", fade, get_args(Fade)),
    ):
        if value not in allowed:
            near = difflib.get_close_matches(str(value), allowed, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}{hint}")
    if only_sublayers and (per != "sublayer" or fade != "both"):
        raise ValueError(
            f"per is {per!r} and fade is {fade!r} with shortcuts=; allowed: per='sublayer' and fade='both', because "
            "only depth= says which shortcuts are attention and which are MLP"
        )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)
