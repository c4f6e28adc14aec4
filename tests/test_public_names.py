"""The public names are one table: what the stub lists is what `echoless.NAME` gives, type checkers see every argument,
and the examples in docstrings are true.

    pytest tests/test_public_names.py
"""

from __future__ import annotations

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import echoless
from echoless import shortcuts
from echoless.verbs.table import VERBS, function_name

SOURCE = Path(echoless.__file__).parent


@pytest.mark.parametrize("name", sorted(echoless._HOMES))
def test_every_name_of_the_stub_is_there(name):
    assert getattr(echoless, name) is getattr(importlib.import_module(echoless._HOMES[name]), name)
    assert name in dir(echoless) and name in echoless.__all__


COMMANDS_ALONE = ("runs", "recipes", "completion")


def test_every_verb_is_public_in_python():
    """`echoless.recipes` and `echoless.runs` are packages: in Python there are `list_recipes` and `list_runs`. Nobody
    completes words in Python by a script for a shell."""
    assert {function_name(verb) for verb in VERBS} - set(echoless.__all__) == set(COMMANDS_ALONE)
    assert {"list_recipes", "list_runs"} <= set(echoless.__all__)


@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "scripts/reference.py"])
def test_the_docs_say_which_commands_are_no_functions(page):
    """They said that every command is one."""
    first, second, third = (f"`{name}`" for name in COMMANDS_ALONE)
    text = (SOURCE.parents[1] / page).read_text()
    assert f"{first}, {second} and {third}" in text and "`import_`" in text


@pytest.mark.parametrize(("name", "answer"), [
    ("runs", "did you mean 'list_runs'"),
    ("recipes", "did you mean 'list_recipes'"),
    ("choose_alpha_min", "did you mean 'alpha_min_for'"),
    ("pretrian", "did you mean 'pretrain'"),
    ("completion", "dir(echoless) lists the public names"),
])  # fmt: skip
def test_a_name_that_is_not_public_is_answered_with_the_one_that_is_meant(name, answer):
    with pytest.raises(AttributeError) as refused:
        echoless.__getattr__(name)
    assert str(refused.value).startswith(f"module 'echoless' has no attribute {name!r}; {answer}")


@pytest.mark.parametrize("name", sorted(echoless._HOMES))
def test_a_docstring_names_no_function_that_is_not_public(name):
    """Those of `fade` and `alphas` named `choose_alpha_min`, which the package keeps for itself."""
    named = set(re.findall(r"`(\w+)`", getattr(echoless, name).__doc__ or ""))
    assert not named & (set(shortcuts.__all__) - set(echoless.__all__))


TYPED = """
from pathlib import Path
import echoless

complete: bool = echoless.pretrain("photos", out=Path("run"), alpha_min=0.6, image_size=(32, 48))
rows: int = echoless.embed("run", Path("photos"), out="features.parquet", layer="last")
names: dict[str, str] = echoless.list_recipes()
echoless.pretrain("photos", out="run", alpha_minn=0.6)
echoless.pretrain("photos", out="run", epochs="ten")
echoless.pretrain("photos", out="run", schedule="square")
echoless.pretrain("photos")
echoless.pretrian
"""
REFUSED = {
    8: 'Unexpected keyword argument "alpha_minn"',
    9: 'Argument "epochs"',
    10: 'Argument "schedule"',
    11: 'Missing named argument "out"',
    12: 'has no attribute "pretrian"',
}


def test_a_type_checker_accepts_a_right_call_and_refuses_wrong_ones(tmp_path):
    pytest.importorskip("mypy", reason="NOT RUN: mypy is not installed")
    (tmp_path / "typed.py").write_text(TYPED)
    (tmp_path / "mypy.ini").write_text("[mypy-torch.*,numpy.*]\nfollow_imports = skip\n")  # most of the time, else
    settings = ["--config-file=mypy.ini", "--follow-imports=silent", "--ignore-missing-imports"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *settings, "--cache-dir", str(tmp_path / "cache"), "typed.py"],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(SOURCE.parent), "PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
    )
    errors = [line for line in done.stdout.splitlines() if line.startswith("typed.py:") and ": error:" in line]
    assert {int(line.split(":")[1]) for line in errors} == REFUSED.keys(), done.stdout + done.stderr
    for line in errors:
        assert REFUSED[int(line.split(":")[1])] in line


EXAMPLES = ("alphas", "alpha_min_for", "effective_alpha", "contributions", "list_recipes")


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_in_docstrings_are_true(name):
    function = getattr(echoless, name)
    tests = doctest.DocTestFinder(recurse=False).find(function, name, globs={name: function, "echoless": echoless})
    assert any(test.examples for test in tests)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    for test in tests:
        assert runner.run(test).failed == 0


def test_every_recipe_is_listed_with_a_sentence():
    from echoless.recipes.table import RECIPES

    listed = echoless.list_recipes()
    assert list(listed) == list(RECIPES) and all(listed.values())
