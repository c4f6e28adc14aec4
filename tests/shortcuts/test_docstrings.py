"""The examples in the docstrings of echoless.shortcuts run and print what they claim."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import echoless
from echoless import shortcuts

MODULES = [f"echoless.shortcuts.{module.name}" for module in pkgutil.iter_modules(shortcuts.__path__)]
WITH_EXAMPLES = (
    "fade",
    "fade_saved",
    "unfade",
    "alphas",
    "alpha_min_for",
    "contributions",
    "effective_alpha",
    "residual",
)


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_of_a_module_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_a_public_function_has_an_example(name: str) -> None:
    assert doctest.DocTestFinder().find(getattr(echoless, name), name)[0].examples
