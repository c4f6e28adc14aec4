"""Which recipes are there? All families in one table."""

from __future__ import annotations

from echoless.config.facts import Recipe
from echoless.recipes.continuing import CONTINUING
from echoless.recipes.diffusion import DIFFUSION
from echoless.recipes.masked import MASKED
from echoless.recipes.selfsupervised import SELF_SUPERVISED
from echoless.recipes.supervised import SUPERVISED

RECIPES: dict[str, Recipe] = MASKED | CONTINUING | SUPERVISED | DIFFUSION | SELF_SUPERVISED
