"""The package: one version, a dated changelog, and a description on the index in which nothing is broken."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from datetime import date
from pathlib import Path

import pytest

import echoless

ROOT = Path(__file__).resolve().parent.parent
RELATIVE = re.compile(r"\]\((?!https?:|#)")


@pytest.fixture(scope="module")
def pypi():
    if importlib.util.find_spec("hatchling") is None:
        pytest.skip("NOT RUN: hatchling is not installed (make release installs it), so the description was not made")
    spec = importlib.util.spec_from_file_location("pypi", ROOT / "tools" / "pypi.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_changelog_begins_with_this_version_and_its_day():
    version, day = re.search(r"^## (\S+) \((\S+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.M).groups()
    assert version == echoless.__version__
    assert date.fromisoformat(day) >= date(2026, 11, 17)


def test_the_bounds_are_pythons_that_are_named():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = [each.rpartition(" ")[2] for each in project["classifiers"] if re.search(r":: 3\.\d+$", each)]
    assert named == ["3.11", "3.12", "3.13"] and project["requires-python"] == f">={named[0]}"


def test_without_an_address_the_index_shows_no_broken_image_or_link(pypi):
    text = pypi.described((ROOT / "README.md").read_text(), "")
    assert not RELATIVE.search(text) and "![" not in text and text.startswith("# echoless")
    assert pypi.addresses("") == {"Paper": "https://arxiv.org/abs/2404.10947"}


def test_the_index_tells_its_readers_to_install_by_name_and_the_repository_by_folder(pypi):
    readme = (ROOT / "README.md").read_text()
    assert all(readme.count(here) == 1 for here in pypi.INSTALL)
    shown = pypi.described(readme, "")
    assert "pip install 'echoless[fast,hf,science]'" in shown and "folder of this file" not in shown


def test_no_page_gives_an_address_that_does_not_exist():
    """The repository has no public address yet: pages say what to do with a copy of it."""
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), ROOT / "docs" / "tutorial.ipynb"]
    assert not [page.name for page in pages if re.search(r"git clone|REPOSITORY\b", page.read_text())]


def test_with_an_address_images_and_links_are_absolute(pypi):
    readme = "![a dog](docs/dog.png)\n\n(a caption)\n\n[guide](docs/guide.md), [paper](https://arxiv.org), [here](#x)"
    assert pypi.described(readme, "https://host/echoless") == (
        "![a dog](https://host/echoless/raw/main/docs/dog.png)\n\n(a caption)\n\n"
        "[guide](https://host/echoless/blob/main/docs/guide.md), [paper](https://arxiv.org), [here](#x)"
    )
    assert pypi.described(readme, "") == "\nguide, [paper](https://arxiv.org), [here](#x)"
    whole = pypi.described((ROOT / "README.md").read_text(), "https://host/echoless")
    assert not RELATIVE.search(whole)
    assert pypi.addresses("https://host/echoless")["Issues"] == "https://host/echoless/issues"
