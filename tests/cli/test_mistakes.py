"""What cannot be read is answered in one sentence that comes from the typed words: whatever tyro prints is not read."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import KW_ONLY, dataclass
from typing import Literal

import pytest
import tyro

from echoless.cli.mistakes import explain
from echoless.cli.parsing import parse
from echoless.config.options.fields import AnyPath
from echoless.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """Paint a wall."""

    wall: AnyPath
    """The wall."""
    rest: tuple[AnyPath, ...]
    """Others."""
    _: KW_ONLY
    out: AnyPath
    """Where."""
    coats: int | None = None
    """How many."""
    colour: Literal["red", "green"] | None = None
    """Which."""
    share: float | Literal["auto"] | None = None
    """How much."""
    corners: tuple[float, float] | None = None
    """Two numbers."""
    shifts: tuple[int, ...] = ()
    """Any number of numbers."""
    dry: bool | None = None
    """Wait."""


GOOD = ["a", "b", "--out", "c"]
MISTAKES = [
    (["--cotas", "3"], "unknown option '--cotas'; see paint --help; did you mean '--coats'?"),
    (
        ["-odd.png"],
        "unknown option '-odd.png'; see paint --help; a value that begins with a dash is given as --OPTION=-odd.png, "
        "a path as ./-odd.png",
    ),
    (["--no-dyr"], "unknown option '--no-dyr'; see paint --help; did you mean '--no-dry'?"),
    (["--coats", "two"], "--coats is 'two'; allowed: a whole number; see paint --help"),
    (["--coats", "1.5"], "--coats is '1.5'; allowed: a whole number; see paint --help"),
    (["--coats=two"], "--coats is 'two'; allowed: a whole number; see paint --help"),
    (["--coats"], "--coats has no value; see paint --help"),
    (["--coats", "--dry"], "--coats has no value; see paint --help"),
    (["--colour", "gren"], "--colour is 'gren'; allowed: red, green; did you mean 'green'?"),
    (["--share", "all"], "--share is 'all'; allowed: a number, auto; see paint --help"),
    (["--corners", "1"], "--corners is '1'; allowed: 2 values, each a number; see paint --help"),
    (["--corners", "1", "x"], "--corners is 'x'; allowed: a number; see paint --help"),
    (["--shifts", "1", "-2", "x"], "--shifts is 'x'; allowed: a whole number; see paint --help"),
]


@pytest.fixture(params=["as it is", "garbage"])
def output(request, monkeypatch):
    """tyro's own messages as they are, and replaced by noise."""
    if request.param == "garbage":
        real = tyro.cli

        def noisy(*arguments, **options):
            try:
                with contextlib.redirect_stderr(io.StringIO()):
                    return real(*arguments, **options)
            finally:
                print("}} {{ Error parsing --nothing: no type matching ~~~", file=sys.stderr)

        monkeypatch.setattr(tyro, "cli", noisy)


@pytest.mark.parametrize(("words", "sentence"), MISTAKES, ids=[" ".join(words) for words, _ in MISTAKES])
def test_one_sentence_names_the_option_its_value_and_what_is_allowed(words, sentence, output):
    with pytest.raises(ConfigError) as refused:
        parse(Options, [*GOOD, *words], "paint")
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "WALL, REST and --out are missing; see paint --help"),
        (["a", "b"], "--out is missing; see paint --help"),
    ],
)
def test_what_is_missing_is_named(words, sentence, output):
    with pytest.raises(ConfigError) as refused:
        parse(Options, words, "paint")
    assert str(refused.value) == sentence


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], {}),
        (["--coats=3", "--colour", "red"], {"coats": 3, "colour": "red"}),
        (["--share", "auto", "--dry"], {"share": "auto", "dry": True}),
        (["--share", "0.5", "--no-dry"], {"share": 0.5, "dry": False}),
        (["--corners", "0", "1", "--shifts", "1", "-2"], {"corners": (0.0, 1.0), "shifts": (1, -2)}),
    ],
)
def test_what_is_right_is_read_and_nothing_is_found_wrong_with_it(words, expected):
    assert parse(Options, [*GOOD, *words], "paint") == Options("a", ("b",), out="c", **expected)
    assert explain(Options, [*GOOD, *words], "paint").endswith("cannot be read; see paint --help")
