"""Whoever installs an extra as a message says keeps the torch that is there.

Run alone: pytest tests/config/test_extras.py
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path

import pytest

import echoless
from echoless.config.extras import install_command

SOURCE = Path(echoless.__file__).parent


def test_the_command_names_the_build_of_torch_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, the extra timm replaced torch 2.13.0+cpu by a CUDA build of several GB."""
    monkeypatch.setattr(importlib.metadata, "version", {"torch": "2.13.0+cpu"}.__getitem__)
    assert install_command("timm") == "pip install 'echoless[timm]' 'torch==2.13.0+cpu'"


def test_without_torch_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "version", version)
    assert install_command("hf") == "pip install 'echoless[hf]'"


def test_no_message_has_a_command_of_its_own() -> None:
    here = SOURCE / "config" / "extras.py"
    found = [file for file in SOURCE.rglob("*.py") if file != here and "pip install 'echoless[" in file.read_text()]
    assert found == []
