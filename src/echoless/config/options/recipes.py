"""Which arguments does `recipes` take? None."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RecipesOptions:
    """List the recipes and the experiments of the papers.

    For every recipe: the command, the cost and the observed result.
    """

    EXAMPLES = (
        "echoless recipes",
        "echoless recipes --json",
    )
