"""Shared images are found under whatever name they have, and equal names of different images are no alarm."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from echoless.data import Images, open_images
from echoless.data.overlap import group_notes, overlap_warning


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path / "cache"))


def told(train: str | Path, test: str | Path) -> str:
    return overlap_warning(open_images(train), open_images(test))


def folder(root: Path, seed: int) -> Path:
    for number in range(6):
        place = root / ("cat" if number % 2 else "dog") / f"{number}.png"
        place.parent.mkdir(parents=True, exist_ok=True)
        pixels = np.random.default_rng([seed, number]).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(place)
    return root


def test_two_lengths_of_the_built_in_set_are_one_stream():
    assert told("shapes:60", "shapes:40").startswith("40 of 40 images of --test are in --train too")
    assert told("shapes:60", "shapes:40@test") == ""


def test_a_set_its_copy_and_a_part_of_it_are_told(tmp_path):
    whole = folder(tmp_path / "whole", 0)
    copy = shutil.copytree(whole, tmp_path / "copy")
    assert told(whole, whole).startswith("6 of 6") and told(whole, copy).startswith("6 of 6")
    assert told(whole, whole / "cat").startswith("3 of 3")


def test_renamed_copies_are_found(tmp_path):
    train, test = folder(tmp_path / "train", 0), folder(tmp_path / "test", 1)
    shutil.copy(train / "dog" / "0.png", test / "cat" / "another-name.png")
    assert told(train, test).startswith("1 of 7 images of --test is in --train too")


def test_the_first_shared_images_are_named_and_the_rest_counted(tmp_path):
    """An image that has another name in the training set is named with that one too."""
    train, test = folder(tmp_path / "train", 0), folder(tmp_path / "test", 1)
    shutil.copy(train / "dog" / "0.png", test / "cat" / "another-name.png")
    assert "(cat/another-name.png is dog/0.png):" in told(train, test)
    for number in (2, 4):
        shutil.copy(train / "dog" / f"{number}.png", test / "dog" / f"{number}.png")
    assert "(cat/another-name.png is dog/0.png, dog/2.png, dog/4.png):" in told(train, test)
    assert "(cat/1.png, cat/3.png, cat/5.png, and 3 more):" in told(train, train)


def test_a_file_of_many_tiles_is_named_once(tmp_path):
    """It was named three times, and the other files not at all."""
    for file in (whole := folder(tmp_path / "whole", 0)).rglob("*.png"):
        Image.open(file).resize((32, 16), Image.Resampling.NEAREST).save(file)
    train, test = open_images(whole, tiles=16), open_images(whole, tiles=16)
    said = overlap_warning(train, test)
    assert said.startswith("12 of 12") and " (cat/1.png, cat/3.png, cat/5.png, and 3 more):" in said


def test_a_set_without_its_unlabelled_images_names_those_that_are_left(tmp_path):
    train = open_images(folder(tmp_path / "train", 0))
    train.leave_out([0, 1])
    assert "1 of 1 images of --test is in DATA too (cat/5.png):" in overlap_warning(train, only(train, 2), "DATA")


def only(images: Images, number: int) -> Images:
    """A set of one of them."""
    one = replace(images)
    one.leave_out(set(range(len(images))) - {number})
    return one


def test_equal_names_of_different_images_are_not(tmp_path):
    assert told(folder(tmp_path / "train", 0), folder(tmp_path / "test", 1)) == ""
    assert told("shapes:20", tmp_path / "test") == ""


def test_one_copy_is_said_in_the_singular(tmp_path):
    """`1 of 7 images are copies of others`."""
    images = folder(tmp_path / "images", 0)
    shutil.copy(images / "dog" / "0.png", images / "dog" / "again.png")
    assert group_notes(open_images(images)) == ["1 of 7 images is a copy of another; copies stay in one fold"]
    shutil.copy(images / "dog" / "0.png", images / "dog" / "and-again.png")
    assert group_notes(open_images(images)) == ["2 of 8 images are copies of others; copies stay in one fold"]
