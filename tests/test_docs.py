"""The documentation: reference pages name every verb, flag, recipe and experiment; the site builds without a warning
and asks nothing of the network; files, commands, options and Python names in the pages exist."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import echoless
from echoless.cli.output import OutputOptions
from echoless.recipes.table import RECIPES
from echoless.sweeps.papers import PAPERS
from echoless.verbs.table import VERBS

ROOT = Path(__file__).resolve().parent.parent
NAMED_FILE = re.compile(r"\b(?:tests|benchmarks|src|scripts|docs)/[\w/*]+\.(?:py|md|png)\b")


@pytest.fixture(scope="module")
def reference():
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_verb_is_on_its_page_with_its_real_help(reference):
    page = reference.verbs()
    assert re.findall(r"^## (\S+)$", page, re.M) == list(VERBS)
    for flag in ("--alpha-min", "--checkpoint-every", "--seeds", "--layers", "--tolerance"):
        assert flag in page
    assert "\x1b" not in page and max(map(len, page.splitlines())) <= 120


def test_every_recipe_and_experiment_is_on_its_page(reference):
    page = reference.recipes()
    assert re.findall(r"^### (\S+)$", page, re.M) == list(RECIPES)
    assert all(f"| {name} |" in page for name in PAPERS)


def test_every_page_of_the_menu_exists_and_every_page_is_in_the_menu(reference):
    menu = set(re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert menu == {path.name for path in (ROOT / "docs").glob("*.md")} | set(reference.PAGES)


def test_the_site_builds_without_a_warning_and_fetches_nothing(tmp_path):
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("NOT RUN: mkdocs-material is not installed (make docs installs it), so the site was not built")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.glob("*.html"))
    assert {"index.html", "verbs.html", "recipes.html", "method.html", "results.html"} <= {page.name for page in pages}
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]+src=[\"']?(?:https?:)?//|<link[^>]+rel=[\"']?(?:stylesheet|preconnect)[^>]+//"
    )
    for page in pages:
        assert not fetched.search(page.read_text()), page.name


def test_every_file_named_in_the_documentation_exists():
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    named = {(page.name, path) for page in pages for path in NAMED_FILE.findall(page.read_text())}
    assert len(named) > 20
    assert not {pair for pair in named if not list(ROOT.glob(pair[1]))}


def _pages() -> list[Path]:
    return [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]


def test_every_command_in_the_guide_exists_with_its_options():
    """Every line of a block `echoless VERB ... --option`, without its comment."""
    commands = [
        (page.name, verb, re.findall(r"(?<=\s)--([a-z][\w-]*)", rest))
        for page in _pages()
        for verb, rest in re.findall(r"^(?:    )?echoless ([a-z]+)([^#\n]*)", page.read_text(), re.M)
    ]
    assert len(commands) > 30
    for page, verb, flags in commands:
        known = {
            field.name for options in (VERBS[verb].options, OutputOptions) for field in dataclasses.fields(options)
        }
        assert {flag.removeprefix("no-").replace("-", "_") for flag in flags} <= known, (page, verb, flags)


def test_every_recipe_and_python_name_in_the_guide_exists():
    text = "\n".join(page.read_text() for page in _pages())
    recipes = set(re.findall(r"--recipe ([a-z0-9-]+)", text))
    names = set(re.findall(r"\becholess\.([a-z_]\w*)\(", text))
    assert len(recipes) >= 4 and recipes <= set(RECIPES)
    assert len(names) >= 6 and all(hasattr(echoless, name) for name in names)


def _names(tree: ast.Module) -> set[str]:
    """Functions, classes and tables of a module."""
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        defined |= {target.id for target in targets if isinstance(target, ast.Name)}
    return defined


def test_every_step_of_the_walk_exists():
    """`docs/architecture.md` follows one image through the code by file and name."""
    named = re.findall(r"`([\w/]+\.py):(\w+)`", (ROOT / "docs" / "architecture.md").read_text())
    assert len(named) >= 20
    for file, name in named:
        assert name in _names(ast.parse((ROOT / "src" / "echoless" / file).read_text())), (file, name)


def test_every_table_that_extending_names_is_where_it_says():
    page = (ROOT / "docs" / "extending.md").read_text()
    files = re.findall(r"`(src/echoless/[\w/]+\.py)`", page)
    tables = set(re.findall(r"`([A-Z_]{5,})`", page))
    defined = {
        name for file in (ROOT / "src" / "echoless").rglob("*.py") for name in _names(ast.parse(file.read_text()))
    }
    assert files and tables <= defined, tables - defined
