"""Help: every option in its group, common ones first; examples that can be typed; a reader that stops reading."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from dataclasses import KW_ONLY, dataclass, fields

import pytest

from echoless.cli.help import WIDEST, help_page
from echoless.cli.output import FLAGS, take
from echoless.cli.parsing import parse
from echoless.config.options.fields import GROUPS, flag, group, groups
from echoless.verbs.table import VERBS


def headings(page: str) -> list[str]:
    """Lines of a few small words with a colon, after an empty one."""
    return re.findall(r"^\n([a-z ]+):$", page, re.M)


@pytest.mark.parametrize("verb", VERBS)
def test_every_option_is_there_once_in_groups_of_one_order(verb, typed):
    page = typed(verb, "--help").printed
    shown = headings(page)
    assert shown == [title for title in ("examples", "needed", *GROUPS) if title in shown]
    flags = re.findall(r"^  (--[\w-]+)", page, re.M)
    named = [flag(field.name) for field in fields(VERBS[verb].options) if field.kw_only]
    assert sorted(flags) == sorted([*named, "--json", "--quiet", "--help"])
    assert "options options" not in page and "None" not in page
    assert max(map(len, page.splitlines())) <= WIDEST


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_two_examples_that_can_be_typed(verb):
    examples = VERBS[verb].options.EXAMPLES
    assert len(examples) >= 2
    for line in examples:
        program, name, *words = shlex.split(line.partition(" > ")[0])
        assert (program, name) == ("echoless", verb)
        parse(VERBS[verb].options, take(words)[1], "echoless")


@dataclass(frozen=True)
class Options:
    """Paint a wall.

    A second paragraph.
    """

    wall: str
    """The wall."""
    _: KW_ONLY
    coats: int = 0
    """How many."""

    group("machine")
    ladder: bool = True
    """Use one."""

    group("network")
    colours: tuple[str, ...] = ("red", "green")
    """Which."""


def test_a_field_belongs_to_the_group_above_it_and_groups_have_one_order():
    assert groups(Options) == {
        "wall": "common options",
        "_": "common options",
        "coats": "common options",
        "ladder": "machine",
        "colours": "network",
    }
    page = help_page(Options, "paint")
    assert headings(page) == ["needed", "common options", "network", "machine"]
    assert page.startswith("usage: paint WALL [options]\n\nPaint a wall.\n\nA second paragraph.\n\nneeded:\n  WALL ")
    assert "How many (default: 0)." in page and "Which (default: red green)." in page and "(default: yes)" in page
    assert "--ladder, --no-ladder" in page and "--colours TEXT [TEXT ...]" in page


@pytest.mark.parametrize(
    ("name", "where"),
    [("mask_ratio", "masked autoencoders"), ("conditional", "diffusion models"), ("latent", "diffusion models")],
)
def test_options_of_pretrain_stand_where_a_reader_looks_for_them(name, where):
    assert groups(VERBS["pretrain"].options)[name] == where


def test_an_unknown_group_is_refused_where_it_is_written():
    with pytest.raises(ValueError, match="group is 'misc'; allowed: common options, "):
        group("misc")


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("--lr", "'--base-lr' or '--min-lr'"),
        ("--steps", "'--max-steps'"),
        ("--jsn", "'--json'"),
        ("--epoch", "'--epochs'"),
    ],
)
def test_a_misspelt_option_is_answered_with_those_it_may_be(typo, meant, typed):
    done = typed("pretrain", "data", "--out", "run", typo, "1")
    assert done.code == 2
    assert done.said == (
        f"echoless pretrain: unknown option '{typo}'; see echoless pretrain --help; did you mean {meant}?\n"
    )


@pytest.mark.parametrize("words", [[], ["--help"], ["pretrain", "--help"]])
def test_a_reader_that_has_seen_enough_is_no_error(words):
    """`echoless --help | true`, with a pipe that is closed before anything is written."""
    code = (
        "import os, sys\n"
        "reader, writer = os.pipe()\n"
        "os.close(reader)\n"
        "os.dup2(writer, 1)\n"
        "from echoless.cli.main import main\n"
        f"sys.exit(main({words!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_flags_of_every_verb_are_no_options_of_one():
    """A verb with an option `--json` of its own would never see it."""
    taken = set(FLAGS.values())
    assert not {(verb, field.name) for verb in VERBS for field in fields(VERBS[verb].options) if field.name in taken}
