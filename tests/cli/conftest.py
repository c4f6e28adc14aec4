"""Fixtures of the command-line tests: `typed` runs a command in this process."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from pictures import jpegs, write_images

from echoless.cli.main import main


class Typed(NamedTuple):
    code: int
    printed: str
    said: str  # on stderr


@pytest.fixture
def typed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Typed]:
    """Run a command in this process."""

    def run(*words: object) -> Typed:
        capsys.readouterr()
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        return Typed(code, captured.out, captured.err)

    return run


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Twelve JPEGs in a folder."""
    return write_images(tmp_path / "flat", jpegs())
