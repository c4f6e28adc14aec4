"""`docs/papers.md` leaves no experiment out, gives each at every scale, and names only tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from echoless.sweeps.papers import PAPERS
from echoless.sweeps.papers.scale import SCALES

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "papers.md").read_text()


@pytest.mark.parametrize("name", PAPERS)
def test_every_experiment_has_a_command_for_every_scale(name):
    scales = re.findall(rf"^    echoless sweep .*--paper {name} --scale (\w+)", PAGE, re.M)
    assert sorted(scales) == sorted(SCALES)


def test_every_table_figure_and_equation_of_the_paper_is_there():
    """Counted in arXiv:2404.10947: six equations, five tables, eight figures."""
    for number in range(1, 7):
        assert f"| A{number}," in PAGE
    assert set(re.findall(r"^### Table (\d)", PAGE, re.M)) == set("12345")
    shown = " ".join(re.findall(r"^### Figures? ([\d, and]+)", PAGE, re.M))
    assert set(re.findall(r"\d", shown)) == set("12345678")


def test_every_test_that_is_named_exists():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) > 20
    for file, name in named:
        defined = {node.name for node in ast.walk(ast.parse((ROOT / file).read_text())) if hasattr(node, "name")}
        assert name in defined, (file, name)
