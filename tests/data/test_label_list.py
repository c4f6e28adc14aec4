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


def test_labels_of_unreadable_images_are_said_and_are_no_part_of_the_set_of_labels(photos: Path) -> None:
    """With a row for one, the same labels counted as another set, and were compared with nothing."""
    (photos / "empty.png").write_bytes(b"")
    rows = "A.png,horn\na.png,truck\n"
    without, known = (labelled(photos, text, "labels.csv") for text in (rows, f"{rows}empty.png,church\n"))
    assert describe_labels(known, None) == describe_labels(without, None)
    assert named(known) == named(without) and known.class_names == ("horn", "truck")
    assert describe_classes(known)[1:] == [
        "labels: 1 label of labels.csv left out, of an unreadable image, 'empty.png'"
    ]
    in_a_list = labelled(photos, "\nhorn\ntruck\n\nchurch\n\n", "labels.csv")
    assert describe_labels(in_a_list, None) == describe_labels(without, None)
    assert in_a_list.label_note.endswith("; 1 label of labels.csv left out, of an unreadable image, 'empty.png'")
