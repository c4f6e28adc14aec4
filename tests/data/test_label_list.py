"""A list of labels, one per line: which image gets which line is said, and images without a label have a blank one.

Run alone: pytest tests/data/test_label_list.py
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from echoless.data import open_images
from echoless.data.images import Images
from echoless.data.provenance import describe_labels
from echoless.data.reading import describe_classes
from echoless.errors import DataError

NAMES = ("b.png", "-plot.png", "A.png", "a.png", "é.png")


@pytest.fixture
def photos(tmp_path: Path, picture: Callable, encoded: Callable) -> Path:
    (tmp_path / "photos").mkdir()
    for number, name in enumerate(NAMES):
        (tmp_path / "photos" / name).write_bytes(encoded(picture(number)))
    return tmp_path / "photos"


def labelled(photos: Path, text: str, name: str = "list.txt") -> Images:
    file = photos.parent / name
    file.write_text(text)
    return open_images(photos, labels=file, max_bad_fraction=1.0)


def named(images: Images) -> dict[str, str]:
    return {path: images.class_names[n] for path, n in zip(images.paths, images.labels.tolist()) if n >= 0}


def test_a_list_is_in_the_order_of_ls_and_its_ends_are_said(photos: Path) -> None:
    """In the order of another language, every label was wrong, and nothing told it."""
    shown = subprocess.run(["ls", photos], env={**os.environ, "LC_ALL": "C"}, capture_output=True, text=True).stdout
    names = sorted(NAMES)
    assert len(shown.splitlines()) == len(names) and shown.splitlines()[:4] == names[:4]
    images = labelled(photos, "chain saw\nhorn\ntruck\nhorn\nchurch\n")
    assert named(images) == dict(zip(names, ("chain saw", "horn", "truck", "horn", "church")))
    assert describe_classes(images)[1:] == [
        "labels: list.txt, in the order of sorted names (as LC_ALL=C ls): '-plot.png' = chain saw, ..., "
        "last 'é.png' = church"
    ]
    chosen = photos.parent / "classes.txt"
    chosen.write_text("horn\n")
    part = open_images(photos, labels=photos.parent / "list.txt", classes=chosen)
    assert "'-plot.png' = chain saw" in part.label_note, "also where some of the classes are used"


@pytest.mark.parametrize("end", ["", "\n", "\n\n\n"])
def test_a_blank_line_is_no_label(photos: Path, end: str) -> None:
    """It was passed over, so that lines and images were counted differently."""
    images = labelled(photos, f"horn\n\n  \ntruck\nhorn{end}")
    assert named(images) == {"-plot.png": "horn", "b.png": "truck", "é.png": "horn"}
    numbers = labelled(photos, "\n3\n\n7\n3\n")
    assert named(numbers) == {"A.png": "3", "b.png": "7", "é.png": "3"}
    assert "'-plot.png' = no label, ..., last 'é.png' = 3" in numbers.label_note
    with pytest.raises(DataError, match=r"has 3 lines and the data 5 images; .* unreadable ones too, .* a blank line"):
        labelled(photos, "horn\n\ntruck\n")
    with pytest.raises(DataError, match="has no label for any of the 5 images"):
        labelled(photos, "\n\n\n\n\n")


def test_labels_of_unreadable_images_are_said_however_the_labels_are_given(photos: Path) -> None:
    """They are not used: no class of theirs is counted, and none of them is in the chance level."""
    (photos / "empty.png").write_bytes(b"")
    (photos.parent / "classes.txt").write_text("horn\nchurch\n")
    said = "1 label of labels.csv left out, of an unreadable image, 'empty.png'"
    known = labelled(photos, "A.png,horn\na.png,truck\nempty.png,church\n", "labels.csv")
    counted, left_out = describe_classes(known)
    assert "2 classes from labels.csv, on 2 of 5 images (horn, truck)" in counted and left_out == f"labels: {said}"
    assert describe_labels(known, None)["chance"] == 0.5
    how = {"labels": photos.parent / "labels.csv", "max_bad_fraction": 1.0}
    assert open_images(photos, classes=photos.parent / "classes.txt", **how).label_note == said
    in_a_list = labelled(photos, "\nhorn\ntruck\n\nchurch\n\n", "labels.csv")
    assert in_a_list.label_note.endswith(f"; {said}")


@pytest.mark.parametrize("given", [{}, {"tiles": 16}, {"classes": "horn\ntruck\nzebra\n"}], ids=str)
def test_the_set_of_labels_and_its_classes_are_the_same_with_and_without_a_cache(photos: Path, given: dict) -> None:
    """Without one, it is not known at first which images cannot be read: there was one class more, and another set."""
    (photos / "A.png").write_bytes(b"no image")
    (photos.parent / "labels.csv").write_text("A.png,zebra\na.png,truck\nb.png,horn\n")
    if "classes" in given:
        (photos.parent / "classes.txt").write_text(given["classes"])
        given = {"classes": photos.parent / "classes.txt"}
    how = {"labels": photos.parent / "labels.csv", "max_bad_fraction": 1.0, **given}
    opened = [open_images(photos, cache=cache, **how) for cache in ("on", "off")]
    assert [len(images.bad) for images in opened] == [1, 0]
    assert {images.class_names for images in opened} == {("horn", "truck", "zebra")}
    assert len({describe_labels(images, None)["label_set"] for images in opened}) == 1
