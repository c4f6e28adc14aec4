"""The documentation: reference pages name every verb, flag, recipe and experiment; the site builds without a warning
and asks nothing of the network; files, commands, options and Python names in the pages exist."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest

import echoless
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


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The built pages, by name. A warning of mkdocs or mkdocstrings is an error."""
    if importlib.util.find_spec("mkdocs") is None or importlib.util.find_spec("material") is None:
        pytest.skip("NOT RUN: mkdocs-material is not installed (make docs installs it), so the site was not built")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_text() for path in folder.glob("*.html")} | {"": folder}


def test_the_site_builds_without_a_warning_and_fetches_nothing(site):
    pages = {name: text for name, text in site.items() if name}
    assert {"index.html", "verbs.html", "recipes.html", "api.html", "method.html", "results.html"} <= set(pages)
    fetched = re.compile(
        r"<(?:script|img|iframe)[^>]+src=[\"']?(?:https?:)?//|<link[^>]+rel=[\"']?(?:stylesheet|preconnect)[^>]+//"
    )
    assert not [name for name, text in pages.items() if fetched.search(text)]


def test_every_link_and_image_of_the_site_leads_somewhere(site):
    """Files, and the places in them, as a browser would follow them; addresses of the network are not tried."""
    folder, broken, count = site[""], [], 0
    ids = {name: set(re.findall(r"\bid=[\"']?([^\"' >]+)", text)) for name, text in site.items() if name}
    for name in ids:
        for target in re.findall(r"<(?:a|img)\b[^>]*?\b(?:href|src)=[\"']?([^\"' >]+)", site[name]):
            path, _, place = unquote(target).partition("#")
            if re.match(r"[a-z]+:", target) or name == "404.html":
                continue
            count += 1
            known = ids.get(path or name)
            if not (folder / (path or name)).is_file() or (place and known is not None and place not in known):
                broken.append((name, target))
    assert count > 500 and not broken


def test_every_link_and_image_leads_somewhere_in_a_plain_checkout():
    """Pages as files, before any site is built."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]:
        for path, place in re.findall(r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", page.read_text()):
            target = page.parent / path if path else page
            assert target.exists(), (page.name, path)
            assert not place or place in _places(target), (page.name, path, place)


def _places(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_what_stands_in_for_a_generated_page_says_how_to_see_it_and_is_not_on_the_site(reference, site):
    stand_ins = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md") if path.name in reference.PAGES}
    assert set(stand_ins) == {"verbs.md", "recipes.md", "metrics.md", "api.md"}
    for name, text in stand_ins.items():
        built = name.replace(".md", ".html")
        assert f"`build/site/{built}`" in text and len(text.splitlines()) < 12
        assert _places(ROOT / "docs" / name) <= set(re.findall(r'\bid="?([\w-]+)', site[built]))
        assert "build/site" not in site[built]


def test_a_generated_page_is_printed_by_its_name():
    command = [sys.executable, "scripts/reference.py", "metrics"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("# Metrics") and "| `knn` |" in done.stdout and "# Every verb" not in done.stdout


def test_every_file_named_in_the_documentation_exists():
    pages = [*(ROOT / "docs").glob("*.md"), *ROOT.glob("*.md")]
    named = {(page.name, path) for page in pages for path in NAMED_FILE.findall(page.read_text())}
    assert len(named) > 20
    assert not {pair for pair in named if not list(ROOT.glob(pair[1]))}


def _pages() -> list[Path]:
    return [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]


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
