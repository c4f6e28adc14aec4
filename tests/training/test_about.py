"""A run says where and how long it ran and shows a few of its images, and nothing of that reaches its checkpoints."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from PIL import Image

import echoless
from echoless.data import plain_images
from echoless.reports.datasheet import show_data
from echoless.runs import open_run
from echoless.runs.about import sentences, speed_of
from echoless.runtime import join_team
from echoless.training.about import recorded

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_config, tiny_images, tiny_run


def test_sessions_and_their_seconds_add_up(tmp_path):
    images = tiny_images(24)
    assert tiny_run(tmp_path / "run", images, tiny_config(images, steps=2))
    once = json.loads((tmp_path / "run" / "about.json").read_text())
    assert tiny_run(tmp_path / "run", images, tiny_config(images, steps=3), resume=True)
    twice = json.loads((tmp_path / "run" / "about.json").read_text())
    assert (once["sessions"], once["ended"], twice["sessions"], twice["ended"]) == (1, 1, 2, 2)
    assert twice["seconds"] >= once["seconds"] and twice["started"] == once["started"]
    assert once["parameters"]["all"] > once["parameters"]["encoder"] > 0
    assert size_of_sheet(tmp_path) == (8 * 98 - 2, 3 * 98 - 2)


def test_what_the_log_says_for_people_stands_in_about_json_for_programs(tmp_path):
    images = tiny_images(24)
    assert tiny_run(tmp_path / "run", images, tiny_config(images, steps=6))
    about = json.loads((tmp_path / "run" / "about.json").read_text())
    kept = {"images": 24, "height": 32, "width": 32, "channels": 3, "bits": 8}
    assert about["data"] == kept | {"input": [32, 32], "crop_scale": [0.2, 1.0], "interpolation": "bilinear"}
    assert about["model"]["parameters"] == about["parameters"]["all"]
    assert about["shortcuts"]["first_alpha"] == 1.0 > about["shortcuts"]["effective_alpha"] > 0
    assert about["run"]["steps"] == 6 and about["run"]["seed"] == 0 and about["run"]["compiled"] is False
    assert about["speed"]["images_per_second"] > 0 and speed_of(about) == about["speed"]["images_per_second"]
    log = (tmp_path / "run" / "log.txt").read_text()
    for name, sentence in sentences(about).items():
        assert f"{name}: {sentence}" in log
    assert set(sentences(about)) == {"data", "model", "shortcuts", "run"}


def test_the_data_line_says_the_size_of_the_files_and_what_is_used_of_them():
    data = {"images": 24, "height": 256, "width": 341, "channels": 3, "bits": 8, "file_height": 375, "file_width": 500}
    used = {"input": [224, 224], "crop_scale": [0.2, 1.0], "interpolation": "bicubic"}
    assert sentences({"data": data | used})["data"] == (
        "24 images of about 375 x 500, kept at about 256 x 341, 3 channels, 8 bit; "
        "random crops of 20 to 100 % of the area, bicubic, at 224 x 224"
    )
    tiles = data | {"height": 64, "width": 64, "files": 2, "input": [64, 64], "crop_scale": None}
    assert sentences({"data": tiles})["data"] == (
        "24 tiles of 64 x 64 from 2 images of about 375 x 500, 3 channels, 8 bit; the centre, at 64 x 64"
    )
    assert sentences({"data": tiles | {"files": 1}})["data"].startswith("24 tiles of 64 x 64 from 1 image of about")
    older = {"images": 24, "height": 32, "width": 32, "channels": 3, "bits": 8}
    assert sentences({"data": older})["data"] == "24 images of about 32 x 32, 3 channels, 8 bit"


def test_tiles_that_are_seen_smaller_than_they_were_cut_say_how_to_see_every_pixel():
    """Tiles of 256 were trained on at 128 x 128, by a page that said they are never reduced."""
    tiles = {
        "images": 24,
        "height": 256,
        "width": 256,
        "files": 2,
        "channels": 3,
        "bits": 8,
        "interpolation": "bicubic",
    }
    crops = {"input": [128, 128], "crop_scale": [0.2, 1.0]}
    assert sentences({"data": tiles | crops})["data"].endswith(
        "of the area, bicubic, at 128 x 128, smaller than a tile, which --image-size 256 shows at full size"
    )
    assert sentences({"data": tiles | {"input": [256, 256], "crop_scale": None}})["data"].endswith("at 256 x 256")
    images = {name: value for name, value in tiles.items() if name != "files"}
    assert "--image-size" not in sentences({"data": images | crops})["data"]


def test_no_code_reads_a_sentence_back():
    """Reports and sweeps search no text: the two patterns there are of a folder's name and of a parameter's."""
    source = Path(echoless.__file__).parent
    users = {
        str(path.relative_to(source))
        for package in ("reports", "sweeps", "training")
        for path in (source / package).rglob("*.py")
        if "\nimport re\n" in path.read_text()
    }
    assert users == {"sweeps/experiment.py", "sweeps/papers/readings.py"}


def test_every_session_stays_in_the_history_and_the_speed_is_that_of_the_latest(tmp_path):
    facts = {"data": {}}
    with open_run(tmp_path / "run") as run:
        with recorded(run, "first", facts, join_team("cpu")) as record:
            record.note_speed(100.0)
        with recorded(run, "second", facts, join_team("cpu")):
            about = run.read_about()
        ended = run.read_about()
    assert [session["command"] for session in about["history"]] == ["first", "second"]
    assert about["history"][0]["images_per_second"] == 100.0 and speed_of(about) is None, "not the earlier one's"
    assert about["history"][1]["seconds"] is None and ended["history"][1]["seconds"] is not None
    assert ended["history"][0] == about["history"][0], "what was said of a session is never rewritten"
    assert isinstance(ended["machine"]["vector_features"], list)


def test_a_file_of_an_earlier_version_becomes_the_first_entry_of_the_history(tmp_path):
    with open_run(tmp_path / "run") as run:
        run.write_about({"command": "old", "started": "2026", "sessions": 2, "ended": 1, "seconds": 5.0})
        with recorded(run, "new", {}, join_team("cpu")):
            pass
        about = run.read_about()
    assert [session["command"] for session in about["history"]] == ["old", "new"]
    assert (about["sessions"], about["ended"], about["started"]) == (3, 2, "2026")


@pytest.mark.parametrize("hostile", [{"data": 1}, {"data": {"images": 3}}, {"model": {"title": "", "parameters": "x"}}])
def test_facts_of_the_wrong_kind_make_no_sentence(hostile):
    assert sentences(hostile) == {}


def test_a_session_that_fails_has_begun_and_not_ended(tmp_path):
    with open_run(tmp_path / "run") as run:
        with pytest.raises(KeyError), recorded(run, "echoless", {}, join_team("cpu")):
            raise KeyError
        about = run.read_about()
    assert (about["sessions"], about["ended"], about["command"]) == (1, 0, "echoless")


def test_a_set_smaller_than_the_sheet_is_shown_whole(tmp_path):
    with open_run(tmp_path / "run") as run:
        show_data(run, tiny_images(5), (32, 32))
    assert size_of_sheet(tmp_path) == (5 * 98 - 2, 96)


def test_the_sheet_shows_every_class_of_a_folder_sorted_by_class(tmp_path, monkeypatch):
    shown: list[int] = []

    def noted(images, ids, size):
        shown.extend(ids)
        return plain_images(images, ids, size)

    monkeypatch.setattr("echoless.reports.datasheet.plain_images", noted)
    with open_run(tmp_path / "run") as run:
        show_data(run, tiny_images(200), (32, 32))
    assert {number // 20 for number in shown} == set(range(10)), (
        "twenty images of each of ten classes, one after another"
    )


def size_of_sheet(folder: Path) -> tuple[int, int]:
    with Image.open(folder / "run" / "figures" / "data.png") as sheet:
        return sheet.size


def test_alpha_one_is_called_plain():
    facts = {"variant": "faded", "first_alpha": 1.0, "last_alpha": 1.0, "effective_alpha": 1.0}
    assert sentences({"shortcuts": facts})["shortcuts"] == "plain, alpha 1 everywhere: a standard residual network"
    faded = facts | {"last_alpha": 0.4, "effective_alpha": 8.7e-3}
    assert sentences({"shortcuts": faded})["shortcuts"] == "faded, alpha from 1 to 0.4, effective 8.7e-03"
