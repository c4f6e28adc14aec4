"""A tiny trained run, shared by the tests of this folder."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run


@pytest.fixture(scope="session")
def run(tmp_path_factory) -> Path:
    images = tiny_images(400)
    out = tmp_path_factory.mktemp("evaluation") / "run"
    tiny_run(out, images, tiny_config(images, steps=30), checkpoint_every=30, snapshot_every=10)
    return out
