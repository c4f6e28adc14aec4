"""The front door: help is instant and loads no torch; an unknown verb, flag or value is answered, never a traceback."""

from __future__ import annotations

import builtins
import os
import re
import subprocess
import sys
import types
from dataclasses import KW_ONLY, dataclass

import pytest

from echoless.verbs.signature import signature_of
from echoless.verbs.table import VERBS, Verb


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


def test_ctrl_c_while_libraries_are_imported_is_no_traceback(typed, monkeypatch):
    """In the first half second it was one, of 40 lines."""

    def pressed(name, *given):
        if name == "echoless.cli.parsing":
            raise KeyboardInterrupt
        return importing(name, *given)

    importing = builtins.__import__
    monkeypatch.setattr(builtins, "__import__", pressed)
    assert typed("pretrain", "shapes", "--out", "run") == (130, "", "echoless: interrupted\n")


def test_an_unknown_verb_is_answered_with_the_nearest(typed):
    done = typed("pretrian")
    assert (
        done.code == 2 and "unknown verb 'pretrian'; allowed: " in done.said and "did you mean 'pretrain'?" in done.said
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("pretrain", "data", "--out", "run", "--epochs", "ten"), "--epochs is 'ten'; allowed: a number"),
        (
            ("pretrain", "data", "--out", "run", "--precision", "fp8"),
            "--precision is 'fp8'; allowed: auto, fp32, bf16",
        ),
        (
            ("pretrain", "data", "--out", "run", "--crop-scale", "1"),
            "--crop-scale is '1'; allowed: 2 values, each a number",
        ),
        (("pretrain", "data", "--out"), "--out has no value"),
        (("pretrain", "data"), "--out is missing"),
        (("pretrain",), "DATA and --out are missing"),
    ],
)
def test_a_word_that_cannot_be_read_is_answered_in_one_sentence(words, sentence, typed):
    done = typed(*words)
    assert (done.code, done.printed) == (2, "")
    assert done.said == f"echoless pretrain: {sentence}; see echoless pretrain --help\n"


@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ("demo", "recipes", "doctor", "serve")])
def test_every_verb_names_what_is_missing(verb, typed):
    done = typed(verb)
    assert done.code == 2 and done.said.count("\n") == 1
    assert (" missing" in done.said and "; see echoless " in done.said) or "; give one run folder or more" in done.said
    assert not re.search(r"(: |and )(STR|PATH)", done.said), "a word without a flag has a name of its own"


def test_every_recipe_is_listed_with_its_command(typed):
    done = typed("recipes")
    assert done.code == 0 and done.printed.count("echoless pretrain") >= 7


def test_one_recipe_or_experiment_is_shown_by_name(typed):
    """Its name was refused as an unknown word."""
    every = typed("recipes").printed
    assert (one := typed("recipes", "mae-base").printed).startswith("mae-base\n") and one in every
    assert "sweep DATA --paper table3b" in typed("recipes", "table3b").printed
    assert len(typed("recipes", "mae-base", "--json").printed.splitlines()) == 1
    assert "did you mean 'mae-base'?" in typed("recipes", "mae-bass").said


def test_the_version_is_printed(typed):
    assert typed("--version").printed.startswith("echoless ")


@pytest.mark.parametrize("verb", VERBS)
def test_help_verb_is_verb_help(verb, typed):
    asked, flagged = typed("help", verb), typed(verb, "--help")
    assert asked == flagged and asked.code == 0


def test_help_of_an_unknown_verb_names_the_nearest(typed):
    assert "did you mean 'sample'?" in typed("help", "smaple").said


def test_the_overview_has_every_verb_once_in_its_group(typed):
    done = typed("help")
    assert done == typed("--help")
    assert re.findall(r"^  (\S+)  ", done.printed, re.M) == list(VERBS)
    assert re.findall(r"^(\S.*):$", done.printed, re.M) == list(dict.fromkeys(v.group for v in VERBS.values()))
    assert max(map(len, done.printed.splitlines())) <= 120


@dataclass(frozen=True)
class GreetOptions:
    """Greet somebody."""

    name: str
    """Whom."""
    _: KW_ONLY
    times: int = 1
    """How often."""


def test_a_verb_is_a_row_an_options_class_and_a_function(typed, monkeypatch):
    """Added from outside: command line, overview and help know it."""

    @signature_of(GreetOptions)
    def greet(options: GreetOptions) -> str:
        return f"hello {options.name} " * options.times

    monkeypatch.setitem(sys.modules, "echoless.verbs.greet", types.SimpleNamespace(greet=greet))
    monkeypatch.setitem(VERBS, "greet", Verb("manners", GreetOptions, lambda options, result: result))
    assert typed("greet", "you", "--times", 2).printed.strip() == "hello you hello you"
    assert "manners:" in typed().printed and "How often (default: 1)." in typed("help", "greet").printed
    assert greet("you") == "hello you "
    assert typed("greet").said == "echoless greet: NAME is missing; see echoless greet --help\n"


def test_several_words_are_shown_by_the_name_of_one(typed):
    assert "RUN [RUN ...]" in typed("report", "--help").printed
    assert "no run is given; give one run folder or more" in typed("report").said


def test_a_terminal_without_the_letters_of_a_path_loses_nothing(tmp_path):
    """An ASCII terminal, and a name that is not UTF-8 on any: the path is written with escapes."""
    names = ["ünï", os.fsdecode(b"latin-\xe9")]
    code = "import sys; from echoless.cli.main import main; main(['--version']); print(sys.argv[1]); sys.exit(0)"
    for name in names:
        for encoding in ("ascii", "utf-8"):
            env = os.environ | {"LC_ALL": "C", "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "TERM": "dumb"}
            done = subprocess.run([sys.executable, "-c", code, name], env=env, capture_output=True)
            assert done.returncode == 0, done.stderr
