"""Nearest-neighbour galleries: the neighbours are scikit-learn's, a query is never its own, frames tell classes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.neighbors import NearestNeighbors

from echoless.errors import DataError
from echoless.evaluation.extract import FeatureSet, View
from echoless.evaluation.neighbours import NEIGHBOURS, QUERIES, neighbours_of
from echoless.reports.pictures import gallery
from echoless.verbs.evaluate import evaluate


def features(n: int, seed: int) -> FeatureSet:
    vectors = np.random.default_rng(seed).normal(size=(n, 12)).astype(np.float32)
    return FeatureSet(View("x"), vectors, torch.arange(n), torch.arange(n) % 3)


def theirs(bank: FeatureSet, queries: np.ndarray, k: int) -> np.ndarray:
    return NearestNeighbors(n_neighbors=k, metric="cosine").fit(bank.features_ND).kneighbors(queries)[1]


def test_neighbours_are_those_of_scikit_learn_and_a_query_is_never_its_own():
    bank, others, rows = features(200, 1), features(50, 2), torch.tensor([3, 7, 40])
    found = neighbours_of(others, rows, bank, alone=True)
    assert np.array_equal(found.numpy(), theirs(bank, others.features_ND[rows], NEIGHBOURS))
    found = neighbours_of(bank, rows, bank, alone=False)
    assert np.array_equal(found.numpy(), theirs(bank, bank.features_ND[rows], NEIGHBOURS + 1)[:, 1:])
    few = features(4, 3)
    assert neighbours_of(few, torch.tensor([0, 3]), few, alone=False).shape == (2, 3)


def test_a_frame_is_green_where_the_class_is_the_querys(tmp_path):
    same = torch.tensor([[True, False]])
    gallery(tmp_path / "x.png", torch.zeros(1, 3, 8, 8), torch.zeros(1, 2, 3, 8, 8), same, side=8, space=4)
    picture = np.asarray(Image.open(tmp_path / "x.png"))
    right, wrong = picture[0, 16 + 4], picture[0, 2 * 16 + 4]
    assert picture.shape == (16, 3 * 16 + 4, 3)
    assert right[1] > right[0] and wrong[0] > wrong[1]


def test_one_image_has_no_neighbour(run):
    with pytest.raises(DataError, match="neighbours needs two images or more"):
        evaluate(run, train="shapes:1", metrics=("neighbours",))


def test_every_source_gets_its_picture_and_the_page_shows_it(run):
    from echoless.verbs.report import report

    evaluate(run, train="shapes:60", test="shapes:30@test", metrics=("neighbours",))
    for name in ("trained", "raw-pixels", "untrained"):
        with Image.open(run / "figures" / f"neighbours-{name}.png") as picture:
            assert picture.height == QUERIES * 72 and picture.width > NEIGHBOURS * 72
    page = report(run, out=run.parent / "page.html").read_text()
    assert "Nearest neighbours" in page and "Green frame: same class" in page
