"""Which values of options are names of a table? Recipes, experiments and metrics, for shells to complete.

An options class says `str` of them, so that whoever parses it loads no table. Nothing here loads torch.
"""

from __future__ import annotations

from echoless.config.metrics import METRICS, YIELDS
from echoless.recipes.table import RECIPES
from echoless.sweeps.papers import PAPERS

_NAMES: dict[str, tuple[str, ...]] = {
    "recipe": ("auto", *RECIPES),
    "paper": tuple(PAPERS),
    "metrics": tuple(YIELDS),
    "metric": tuple(METRICS),
    "recipes.name": (*RECIPES, *PAPERS),
}


def names_for(verb: str, field: str) -> tuple[str, ...]:
    """What may be given for a field of a verb; nothing where it takes no such name."""
    return _NAMES.get(f"{verb}.{field}") or _NAMES.get(field, ())
