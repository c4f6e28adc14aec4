"""`echoless recipes`"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass

from echoless.cli.parsing import parse


@dataclass(frozen=True)
class Recipes:
    """List the recipes, with the command of each, its cost, and what was seen; and the experiments of the papers."""


def run(arguments: Sequence[str]) -> int:
    parse(Recipes, arguments, "echoless recipes")
    from echoless.recipes.table import RECIPES
    from echoless.sweeps.papers import PAPERS

    for name, recipe in RECIPES.items():
        print(f"{name}\n    " + (inspect.getdoc(recipe) or "").replace("\n", "\n    ") + "\n")
    print("experiments of the papers: echoless sweep DATA --paper NAME --out DIR\n")
    for name, build in PAPERS.items():
        print(f"    {name:10} {(inspect.getdoc(build) or '').splitlines()[0]}")
    return 0
