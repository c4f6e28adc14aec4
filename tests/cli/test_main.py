"""The front door: help is instant and loads no torch; an unknown verb, flag or value is answered, never a traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from echoless.cli.main import VERBS


@pytest.mark.parametrize("words", [["--help"], ["doctor", "--help"], ["pretrain", "--help"], ["recipes", "--help"]])
def test_help_loads_no_torch(words):
    code = (
        "import sys\n"
        "from echoless.cli.main import main\n"
        f"assert main({words!r}) == 0\n"
        "assert not {'torch', 'numpy', 'pyarrow'} & set(sys.modules), 'a heavy library was loaded'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "echoless" in done.stdout


def test_the_overview_names_every_verb(typed):
    done = typed()
    assert done.code == 0 and all(f"  {verb} " in done.printed for verb in VERBS)


def test_an_unknown_verb_is_answered_with_the_nearest(typed):
    done = typed("pretrian")
    assert done.code == 2 and "verb is 'pretrian'; allowed: " in done.said and "did you mean 'pretrain'?" in done.said


@pytest.mark.parametrize("words", [("--epochs", "ten"), ("--precision", "fp8"), ()], ids=["word", "choice", "missing"])
def test_a_value_that_cannot_be_read_exits_2_without_a_traceback(words, typed):
    done = typed("pretrain", "data", *words)
    assert done.code == 2 and "Traceback" not in done.said and done.said


def test_every_recipe_is_listed_with_its_command(typed):
    done = typed("recipes")
    assert done.code == 0 and done.printed.count("echoless pretrain") >= 7


def test_the_version_is_printed(typed):
    assert typed("--version").printed.startswith("echoless ")
