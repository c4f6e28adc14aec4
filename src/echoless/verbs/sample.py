"""`sample`: draw images from a diffusion run into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from echoless.config.options import SampleOptions
from echoless.evaluation.draw import draw_into


def sample(source: str | Path, out: str | Path, **options: Any) -> int:
    """Draw images. The keywords are the fields of `SampleOptions`. Returns how many are there."""
    return draw_into(Path(source), Path(out), SampleOptions(**options))
