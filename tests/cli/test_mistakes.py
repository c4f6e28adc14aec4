"""What cannot be read is answered in one sentence that comes from the typed words: whatever tyro prints is not read."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Literal

import pytest
import tyro

from echoless.cli.main import main
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
    ELSEWHERE = (("brush", "--colour"),)


GOOD = ["a", "b", "--out", "c"]
MISTAKES = [
    (["--cotas", "3"], "unknown option '--cotas'; see paint --help; did you mean '--coats'?"),
    (
        ["-odd.png"],
        "unknown option '-odd.png'; see paint --help; a value that begins with a dash is given as --OPTION=-odd.png, "
        "a path as ./-odd.png",
    ),
    (["--brush", "flat"], "unknown option '--brush'; see paint --help; here it is --colour"),
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


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("pretrain phone/DSC#1.JPG phone/DSC#2.JPG phone/DSC#3.JPG --out r", "DATA is several files"),
        ("pretrain --out r phone/DSC#1.JPG phone/DSC#2.JPG", "DATA is several files"),
        ("embed run phone/DSC#1.JPG phone/DSC#2.JPG --out f.parquet", "DATA is several files"),
        ("evaluate run --train phone/DSC#1.JPG phone/DSC#2.JPG", "--train is several files"),
    ],
)
def test_a_pattern_that_the_shell_expanded_is_to_be_quoted(words, named, tmp_path, monkeypatch, capsys):
    """The second file was an unknown word."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "phone").mkdir()
    for number in (1, 2, 3):
        (tmp_path / "phone" / f"DSC#{number}.JPG").write_bytes(b"")
    assert main(words.split()) == 2
    said = capsys.readouterr().err
    assert f"{named}; quote the pattern that names them, so that it stays one: 'phone/*.JPG'" in said


@pytest.mark.parametrize(
    ("files", "pattern"),
    [
        ("A/00.png A/01.png B/41.png", ": '*/*.png'"),
        ("A/a/00.png A/a/01.png A/b/00.png", ": 'A/*/*.png'"),
        ("A/a/00.png B/b/41.png", ""),
        ("A/00.png A/b/00.png", ""),
        ("00.png b/00.png", ""),
        ("A/00.png A/01.png A/remarks.txt", ": 'A/*'"),
    ],
)
def test_the_pattern_that_is_named_holds_every_file_that_was_given(files, pattern, tmp_path, monkeypatch, capsys):
    """It left out those of other folders, of which the second word said nothing."""
    monkeypatch.chdir(tmp_path)
    for file in map(Path, files.split()):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"")
    assert main(["pretrain", *files.split(), "--out", "r"]) == 2
    assert capsys.readouterr().err.strip().endswith(f"that it stays one{pattern}")
    if pattern:
        assert set(map(Path, files.split())) <= set(Path().glob(pattern.strip(": '")))


def test_a_file_of_another_kind_is_an_unknown_word(tmp_path, monkeypatch, capsys):
    """Without its --labels, a labels file was taken for part of a pattern."""
    monkeypatch.chdir(tmp_path)
    for name in ("data.parquet", "L.csv"):
        Path(name).write_bytes(b"")
    assert main(["pretrain", "data.parquet", "L.csv", "--out", "r"]) == 2
    assert "unknown word 'L.csv'; see echoless pretrain --help" in capsys.readouterr().err


def test_words_that_are_no_files_are_still_unknown(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.jpg").write_bytes(b"")
    assert main(["pretrain", "a.jpg", "other", "--out", "r"]) == 2
    assert "unknown word 'other'" in capsys.readouterr().err
