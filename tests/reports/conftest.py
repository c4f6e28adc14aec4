"""Runs to look at, and a browser to look with."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from made_runs import make_run


@pytest.fixture(scope="session")
def two_runs(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    return [
        make_run(folder / "plain", alpha_min=1.0, level=0.3),
        make_run(folder / "faded", alpha_min=0.6, level=0.45),
    ]


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by playwright."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        pytest.skip("NOT RUN: there is no chromium on this machine, so no page was looked at in a real browser")
    try:
        from playwright.sync_api import sync_playwright
    except Exception as error:
        pytest.skip(f"NOT RUN: playwright cannot be imported ({error}), so no page was looked at in a real browser")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()
