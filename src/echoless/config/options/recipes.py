"""Which arguments does `recipes` take?"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecipesOptions:
    """List the recipes and the experiments of the papers, or one of them.

    For every recipe: the command, the cost and the observed result.
    """

    EXAMPLES = (
        "echoless recipes",
        "echoless recipes mae-base",
        "echoless recipes --json",
    )

    name: str | None = None
    """Only this recipe or experiment (default: all)."""
