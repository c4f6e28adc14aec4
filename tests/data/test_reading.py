"""Classes of a test set are numbered as the training set numbers them, by name, for any two sets.

Run alone: pytest tests/data/test_reading.py
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from echoless.data import Images, open_images
from echoless.data.labels import encode_labels
from echoless.data.reading import align_classes
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
