"""R15: the first losses of a run are the ones committed here; a change of numbers is a decision, never an accident.

After a change that is meant to move them: ECHOLESS_WRITE_GOLDEN=1 pytest tests/reliability/test_r15_golden_losses.py
The fast tier compares 10 steps, the slow one all 50, because other processors round otherwise and it adds up.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from tiny import tiny_comparison, tiny_config, tiny_diffusion, tiny_images, tiny_run

from echoless.config import RunConfig
from echoless.data import Images

GOLDEN = Path(__file__).parent.parent / "golden"
STEPS = 50


def losses(out: Path, images: Images, config: RunConfig) -> list[float]:
    tiny_run(out, images, config)
    return [json.loads(line)["loss"] for line in (out / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("steps", [10, pytest.param(STEPS, marks=pytest.mark.slow)])
@pytest.mark.parametrize("alpha_min", [1.0, 0.6])
def test_the_masked_autoencoder_loses_as_it_did(alpha_min, steps, tmp_path):
    images = tiny_images()
    config = tiny_config(images, steps=STEPS, alpha_min=alpha_min)
    compare(f"mae-alpha-{alpha_min}", losses(tmp_path / "run", images, config), steps)


@pytest.mark.parametrize("recipe", ["infonce", "dino"])
def test_comparisons_of_views_lose_as_they_did(recipe, tmp_path):
    images = tiny_images()
    compare(recipe, losses(tmp_path / "run", images, tiny_comparison(images, recipe, steps=10)), 10)


@pytest.mark.parametrize("kind", ["uvit", "sit"])
@pytest.mark.parametrize("alpha_min", [1.0, 0.7])
def test_diffusion_models_lose_as_they_did(kind, alpha_min, tmp_path):
    images = tiny_images()
    config = tiny_diffusion(images, kind, steps=10, alpha_min=alpha_min)
    compare(f"{kind}-alpha-{alpha_min}", losses(tmp_path / "run", images, config), 10)


def compare(name: str, found: list[float], steps: int) -> None:
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("ECHOLESS_WRITE_GOLDEN"):
        file.write_text("".join(f"{loss:.9g}\n" for loss in found))
    expected = [float(line) for line in file.read_text().split()][:steps]
    difference = max(abs(a - b) for a, b in zip(found[:steps], expected, strict=True))
    print(f"R15 {name}: {steps} steps, largest difference {difference:.1e}")
    assert difference <= 1e-4
