"""Do the trained weights of --init fit a run? Sizes must be equal; alphas may differ where they can be converted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from echoless.errors import RunError
from echoless.shortcuts import Faded, Shortcut


def require_same(old: object, new: object, names: Iterable[str], source: str, more: Sequence[str] = ()) -> None:
    """Of two configs. By name, because torch would list every tensor, and would not notice another number of heads.

    more: further differences, in words.
    """
    pairs = {name: (getattr(old, name), getattr(new, name)) for name in names}
    differing = [f"{name} is {then} there and {now} here" for name, (then, now) in pairs.items() if then != now]
    if differing or more:
        raise RunError(f"--init {source} does not fit this model: {', '.join([*differing, *more])}")


def fixed_alphas(shortcuts: Iterable[Shortcut]) -> list[float]:
    """Refuses shortcuts whose weights cannot be converted to other alphas."""
    alphas = []
    for shortcut in shortcuts:
        if not isinstance(shortcut, Faded):
            kind = type(shortcut).__name__
            raise RunError(f"--init cannot convert weights from or to {kind} shortcuts; allowed: faded, identity")
        alphas.append(float(shortcut.alpha))
    return alphas


@contextmanager
def converting() -> Iterator[None]:
    """What shortcuts/fold.py refuses, as a sentence about --init."""
    try:
        yield
    except ValueError as error:
        raise RunError(f"--init cannot convert the weights to this run's shortcuts: {error}") from None
