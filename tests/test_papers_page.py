"""`docs/papers.md` leaves nothing out, every command on it can be planned, and it names only tests that exist."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from echoless.cli.parsing import parse
from echoless.config.options import SweepOptions
from echoless.sweeps.papers import PAPERS
from echoless.sweeps.papers.scale import SCALES
from echoless.sweeps.run import plan

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "papers.md").read_text()
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (.*?) ?\| (.+?) \|$", PAGE.split("\n## Every table")[1], re.M)
# The three commands: everything after `echoless sweep`, without the comment.
COMMANDS = re.findall(r"^echoless sweep (.*?--paper X [^#\n]*)", PAGE, re.M)


def experiments() -> list[tuple[str, str]]:
    """The name of each experiment with its data at scale paper; table4 has two sets."""
    return [(name, data.strip("`")) for _, name, data, _ in ROWS if name in PAPERS]


def planned(name: str, data: str, command: str):
    words = shlex.split(re.sub(r"\bX\b", name, command.replace("DATA", data, 1)))
    return plan(parse(SweepOptions, words, "echoless sweep"))


def test_every_experiment_is_on_the_page_and_there_is_a_command_for_every_scale():
    assert {name for name, _ in experiments()} == set(PAPERS)
    assert [re.findall(r"--scale (\w+)", command) for command in COMMANDS] == [["paper"], ["cpu"], ["tiny"]]
    assert set(SCALES) == {"paper", "cpu", "tiny"}


@pytest.mark.parametrize(("name", "data"), experiments())
def test_every_command_on_the_page_can_be_planned(name, data):
    """With the options that it needs at scale paper, and with nothing but images at the others."""
    for command in COMMANDS:
        assert planned(name, data, command).trials


def test_every_table_figure_and_equation_of_the_paper_is_there():
    """Counted in arXiv:2404.10947: six equations, five tables, eight figures."""
    shown = [row[0] for row in ROWS]
    for kind, count in (("A, Table ", 5), ("A, Figure ", 8), ("A", 6)):
        for number in range(1, count + 1):
            assert any(re.match(rf"{kind}{number}\D", what) for what in shown), (kind, number)


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 20
    for file, name in named:
        defined = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert name in defined, (file, name)
