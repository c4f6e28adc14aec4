"""Classes of a test set are numbered as the training set numbers them, by name, for any two sets.

Run alone: pytest tests/data/test_reading.py
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from echoless.data import BadSample, Images, open_images
from echoless.data.labels import encode_labels
from echoless.data.reading import align_classes, describe_bad, describe_classes
from echoless.errors import DataError

SHAPES = open_images("shapes:4", cache="off")
WORDS = st.lists(st.sampled_from(["ant", "bee", "cat", "dog", "eel", "fox", "gnu"]), min_size=4, max_size=4)


def labelled(words: list[str]) -> Images:
    labels, names = encode_labels(words, None)
    return replace(SHAPES, labels=labels, class_names=names)


@given(WORDS, WORDS)
def test_every_image_keeps_its_class_under_the_number_of_the_training_set(train_words, test_words):
    train, test = labelled(train_words), labelled(test_words)
    if not set(test_words) <= set(train_words):
        with pytest.raises(DataError, match="classes that the training set lacks"):
            align_classes(train, test)
        return
    align_classes(train, test)
    assert [train.class_names[label] for label in test.labels.tolist()] == test_words


def test_classes_that_are_named_but_have_no_image_cannot_be_learned():
    train = replace(SHAPES, labels=torch.tensor([0, 0, 1, 1]), class_names=("ant", "bee", "cat"))
    test = replace(SHAPES, labels=torch.tensor([0, 1, 2, 2]), class_names=("ant", "bee", "cat"))
    with pytest.raises(DataError, match="lacks: cat"):
        align_classes(train, test)


def test_images_without_a_label_stay_without():
    train = replace(SHAPES, labels=torch.tensor([0, 1, 0, 1]), class_names=("bee", "ant"))
    test = replace(SHAPES, labels=torch.tensor([-1, 0, 1, -1]), class_names=("ant", "bee"))
    align_classes(train, test)
    assert test.labels.tolist() == [-1, 1, 0, -1]


def test_a_labels_file_with_other_columns_is_refused_before_any_image_is_read(tmp_path, monkeypatch):
    """Reading a large set takes hours, and the file is at fault."""
    for name in ("a.png", "b.png"):
        Image.new("RGB", (8, 8)).save(tmp_path / name)
    (tmp_path / "labels.csv").write_text("file,id,remark\na.png,1,cat\n")
    monkeypatch.setattr("echoless.data.opening.find_source", lambda *_: pytest.fail("an image was read"))
    with pytest.raises(DataError, match="has the columns file, id, remark; 'file' is the path, and the column of"):
        open_images(tmp_path, labels=tmp_path / "labels.csv")


def test_labels_are_counted_among_the_images_that_can_be_read(tmp_path):
    for name in ("a.png", "b.png", "c.png"):
        Image.new("RGB", (8, 8), len(name)).save(tmp_path / name)
    (tmp_path / "broken.png").write_bytes(b"no image")
    file = tmp_path.parent / f"{tmp_path.name}.csv"
    file.write_text("path,label\na.png,cat\nb.png,dog\nbroken.png,dog\n")
    counted, left_out = describe_classes(open_images(tmp_path, labels=file, max_bad_fraction=0.5))
    assert "on 2 of 3 images" in counted and left_out.endswith("of an unreadable image, 'broken.png'")


@pytest.mark.parametrize(("bad", "named"), [(1, 1), (4, 4), (5, 3)])
def test_a_refusal_names_every_bad_image_unless_several_more_are_left(tmp_path, bad, named):
    """A refusal of "4 of 396 images" named three of the four."""
    for number in range(6):
        Image.new("RGB", (8, 8)).save(tmp_path / f"{number}.png")
        if number < bad:
            (tmp_path / f"{number}.png").write_bytes(b"")
    with pytest.raises(DataError, match=f"^{bad} of 6 images cannot be used, ") as refused:
        open_images(tmp_path, max_bad_fraction=0.1)
    text = str(refused.value)
    assert text.count(".png (") == named and ("; first: " in text) == (named < bad)


@pytest.mark.parametrize(("count", "lines"), [(21, 21), (22, 21)])
def test_a_list_of_bad_images_ends_with_the_number_of_the_others_where_there_are_several(count, lines):
    bad = [BadSample(number, f"{number}.png", "it is empty") for number in range(count)]
    listed = describe_bad(replace(SHAPES, paths=[each.path for each in bad], bad=bad, max_bad_fraction=1.0))
    assert len(listed) == lines and (listed[-1] == "and 2 more") == (count == 22)
