"""Which runs have a name? All recipes, of every family."""

from __future__ import annotations

from echoless.config.facts import Recipe
from echoless.recipes.diffusion import DIFFUSION
from echoless.recipes.masked import MASKED
from echoless.recipes.selfsupervised import SELF_SUPERVISED
from echoless.recipes.supervised import SUPERVISED

RECIPES: dict[str, Recipe] = MASKED | SUPERVISED | DIFFUSION | SELF_SUPERVISED
