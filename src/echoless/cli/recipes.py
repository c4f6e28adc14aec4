"""`echoless recipes`"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

import tyro


@dataclass(frozen=True)
class Recipes:
    """List the recipes: the command of each, its cost, and what was seen."""


def run(arguments: Sequence[str]) -> int:
    tyro.cli(Recipes, args=list(arguments), prog="echoless recipes")
    from echoless.recipes.masked import RECIPES

    for name, recipe in RECIPES.items():
        print(f"{name}\n    " + (inspect.getdoc(recipe) or "").replace("\n", "\n    ") + "\n")
    return 0
