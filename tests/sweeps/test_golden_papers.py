"""What `sweep --paper X --scale paper --print` prints is committed, so that a change of a published setting is seen.

After a change that is meant: ECHOLESS_WRITE_GOLDEN=1 pytest -n0 tests/sweeps/test_golden_papers.py, and read the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from echoless.config.options import SweepOptions
from echoless.sweeps.papers import PAPERS
from echoless.sweeps.run import command_lines, plan
from echoless.sweeps.starting import Starting

GOLDEN = Path(__file__).parent.parent / "golden" / "papers"
_PIXELS = {"extractor": "inception:FILE"}
_LATENTS = {**_PIXELS, "latent": "VAE"}
# Experiments that need more than images to train and to test on.
MORE: dict[str, dict[str, str]] = {
    "table4": _PIXELS,
    "fig8": _LATENTS,
    "sit": _LATENTS,
    "diffusion": _PIXELS,
    "fig3": {"test_masks": "MASKS", "mask_classes": "coco-stuff-27"},
}
# A file for every experiment, and a second one for those that are published on pixels and on latents.
CASES = {name: (name, MORE.get(name, {})) for name in PAPERS} | {
    f"{name}-latents": (name, _LATENTS) for name in ("table4", "diffusion")
}


@pytest.mark.parametrize("case", CASES)
def test_the_commands_at_the_scale_of_the_paper_are_the_committed_ones(case):
    name, more = CASES[case]
    options = SweepOptions("DATA", out="OUT", paper=name, scale="paper", seeds=1, test="TEST", print=True, **more)
    experiment = plan(options)
    lines = [f"# {experiment.title}", *command_lines(experiment, Path("OUT"), Starting())]
    text = "".join(f"{line}\n" for line in lines)
    file = GOLDEN / f"{case}.txt"
    if os.environ.get("ECHOLESS_WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert file.read_text() == text


def test_there_is_no_file_of_an_experiment_that_is_gone():
    assert {file.stem for file in GOLDEN.glob("*.txt")} == set(CASES)
