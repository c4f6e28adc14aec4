"""What does `recipes` do? List every recipe and every experiment of the papers, from their docstrings."""

from __future__ import annotations

import inspect
from typing import Any

from echoless.config.options import RecipesOptions
from echoless.verbs.signature import signature_of


@signature_of(RecipesOptions)
def recipes(options: RecipesOptions) -> str:
    """Returns the list as text."""
    from echoless.recipes.table import RECIPES
    from echoless.sweeps.papers import PAPERS

    parts = [
        f"{name}\n    " + (inspect.getdoc(recipe) or "").replace("\n", "\n    ") + "\n"
        for name, recipe in RECIPES.items()
    ]
    parts.append("experiments of the papers: echoless sweep DATA --paper NAME --out DIR\n")
    parts += [f"    {name:10} {first_line(build)}" for name, build in PAPERS.items()]
    return "\n".join(parts)


def first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").splitlines()[0]


def list_recipes() -> dict[str, str]:
    """Name -> first line of what the recipe is.

    >>> list_recipes()["mae-base"]
    "The paper's ImageNet settings: ViT-B/16, alpha_min 0.6."
    """
    from echoless.recipes.table import RECIPES

    return {name: first_line(recipe) for name, recipe in RECIPES.items()}
