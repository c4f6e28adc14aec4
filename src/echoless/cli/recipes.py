"""`echoless recipes`"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from echoless.cli.parsing import parse


@dataclass(frozen=True)
class Recipes:
    """List the recipes: the command of each, its cost, and what was seen."""


def run(arguments: Sequence[str]) -> int:
    parse(Recipes, arguments, "echoless recipes")
    from echoless.recipes.table import RECIPES

    for name, recipe in RECIPES.items():
        print(f"{name}\n    " + (inspect.getdoc(recipe) or "").replace("\n", "\n    ") + "\n")
    return 0
