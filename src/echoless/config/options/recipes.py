"""Which arguments does `recipes` take? None."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecipesOptions:
    """List the recipes, with the command of each, its cost and what was seen; and the experiments of the papers."""
