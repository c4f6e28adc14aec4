"""A few images stand for a set: every class in its share, whatever the order of the folder, and the same for a seed."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from echoless.data import open_images
from echoless.data.subset import draw_images, draw_rows


@given(st.lists(st.integers(1, 60), min_size=1, max_size=6), st.integers(1, 400), st.integers(0, 5))
@example(sizes=[1, 1, 1, 8], count=4, seed=0)
def test_every_class_has_its_share_of_every_draw(sizes, count, seed):
    """Each of k classes is within half an image of its pace, so the pace is off by k / 2 images of the whole set, of
    which a class has its share."""
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])  # sorted, as folders are
    rows = draw_rows(len(labels), count, labels, seed=seed)
    assert len(rows) == min(count, len(labels)) == len(set(rows.tolist()))
    for label, size in enumerate(sizes):
        share = size / len(labels)
        off = abs(int((labels[rows] == label).sum()) - share * len(rows))
        assert off <= 0.5 + share * len(sizes) / 2 + 1e-9


def test_a_draw_without_labels_is_not_the_beginning_and_depends_on_the_seed():
    first, again, other = (draw_rows(1000, 50, seed=seed).tolist() for seed in (0, 0, 1))
    assert first == again != other and max(first) > 500


def test_excluded_images_are_never_drawn(monkeypatch):
    images = open_images("shapes:60")
    monkeypatch.setattr(images, "excluded", frozenset(range(0, 60, 2)))
    assert {index % 2 for index in draw_images(images, 25, seed=0)} == {1}


@pytest.mark.parametrize("count", [10, 1000])
def test_a_draw_of_everything_is_everything(count):
    assert sorted(draw_rows(10, count, seed=3).tolist()) == list(range(10))
