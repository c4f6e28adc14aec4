"""Which arguments does `recipes` take? None."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecipesOptions:
    """List the recipes and the experiments of the papers.

    Of every recipe its command, its cost and what was seen.
    """
