"""What does `recipes` do? List the recipes and the experiments of the papers, or one of them, from their docstrings."""

from __future__ import annotations

import inspect
from textwrap import indent
from typing import Any

from echoless.config.checks import require_one_of
from echoless.config.options import RecipesOptions
from echoless.verbs.signature import signature_of


@signature_of(RecipesOptions)
def recipes(options: RecipesOptions) -> str:
    """Returns the list, or one entry of it, as text."""
    from echoless.recipes.table import RECIPES
    from echoless.sweeps.papers import PAPERS

    if options.name in RECIPES:
        return _entry(options.name, RECIPES[options.name])
    if options.name in PAPERS:
        command = f"echoless sweep DATA --paper {options.name} --out DIR"
        return f"{_entry(options.name, PAPERS[options.name])}\n    {command}"
    if options.name is not None:
        require_one_of("name", options.name, (*RECIPES, *PAPERS))
    parts = [_entry(name, recipe) + "\n" for name, recipe in RECIPES.items()]
    parts.append("experiments of the papers: echoless sweep DATA --paper NAME --out DIR\n")
    parts += [f"    {name:10} {first_line(build)}" for name, build in PAPERS.items()]
    return "\n".join(parts)


def _entry(name: str, documented: Any) -> str:
    return f"{name}\n{indent(inspect.getdoc(documented) or '', '    ')}"


def first_line(documented: Any) -> str:
    return (inspect.getdoc(documented) or "").splitlines()[0]


def list_recipes() -> dict[str, str]:
    """Name -> first line of what the recipe is.

    >>> list_recipes()["mae-base"]
    "The paper's ImageNet settings: ViT-B/16, alpha_min 0.6."
    """
    from echoless.recipes.table import RECIPES

    return {name: first_line(recipe) for name, recipe in RECIPES.items()}
