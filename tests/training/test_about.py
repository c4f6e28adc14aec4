"""A run says where and how long it ran and shows a few of its images, and nothing of that reaches its checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

from echoless.reports.datasheet import show_data
from echoless.runs import open_run
from echoless.runtime import join_team
from echoless.training.about import recorded

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run


def test_sessions_and_their_seconds_add_up(tmp_path):
    images = tiny_images(24)
    config = tiny_config(images, steps=2)
    assert tiny_run(tmp_path / "run", images, config)
    once = json.loads((tmp_path / "run" / "about.json").read_text())
    assert tiny_run(tmp_path / "run", images, config, resume=True)
    twice = json.loads((tmp_path / "run" / "about.json").read_text())
    assert (once["sessions"], once["ended"], twice["sessions"], twice["ended"]) == (1, 1, 2, 2)
    assert twice["seconds"] >= once["seconds"] and twice["started"] == once["started"]
    assert once["parameters"]["all"] > once["parameters"]["encoder"] > 0
    assert size_of_sheet(tmp_path) == (12 * 50 - 2, 2 * 50 - 2)


def test_a_session_that_fails_has_begun_and_not_ended(tmp_path):
    model = tiny_model()
    with open_run(tmp_path / "run") as run:
        with pytest.raises(KeyError), recorded(run, "echoless", model, join_team("cpu")):
            raise KeyError
        about = run.read_about()
    assert (about["sessions"], about["ended"], about["command"]) == (1, 0, "echoless")


def test_a_set_smaller_than_the_sheet_is_shown_whole(tmp_path):
    with open_run(tmp_path / "run") as run:
        show_data(run, tiny_images(5), (32, 32))
    assert size_of_sheet(tmp_path) == (5 * 50 - 2, 48)


def size_of_sheet(folder: Path) -> tuple[int, int]:
    with Image.open(folder / "run" / "figures" / "data.png") as sheet:
        return sheet.size


def tiny_model():
    from echoless.models import MAE

    return MAE(tiny_config(tiny_images(8)).model)
