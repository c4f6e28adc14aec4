"""Nearest-neighbour galleries: the neighbours are scikit-learn's, a query is never its own, frames tell classes."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.neighbors import NearestNeighbors

from echoless.data import open_images
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


def frames(file: Path, rows: int, near: int) -> list[list[str]]:
    """The colour of the frame of every neighbour."""
    with Image.open(file) as opened:
        picture = np.asarray(opened.convert("RGB")).astype(int)
    step = picture.shape[0] // rows
    left = picture.shape[1] - step * near
    corners = [[picture[row * step, left + place * step] for place in range(near)] for row in range(rows)]
    return [["grey" if len({*at}) == 1 else "green" if at[1] > at[0] else "red" for at in row] for row in corners]


def test_a_frame_is_green_where_the_class_is_the_querys_and_grey_where_one_has_no_label(tmp_path):
    """Two images without a label counted as one class, so that nearly every frame was green."""
    classes = torch.tensor([2, -1]), torch.tensor([[2, 0, -1], [-1, 2, -1]])
    file = gallery(tmp_path / "x.png", torch.zeros(2, 3, 8, 8), torch.zeros(2, 3, 3, 8, 8), classes, side=8, space=4)
    with Image.open(file) as opened:
        assert opened.size == (4 * 16 + 4, 2 * 16)
    assert frames(file, 2, 3) == [["green", "red", "grey"], ["grey", "grey", "grey"]]
    file = gallery(tmp_path / "x.png", torch.zeros(1, 3, 8, 8), torch.zeros(1, 2, 3, 8, 8), None, side=8, space=4)
    assert frames(file, 1, 2) == [["grey", "grey"]]


@pytest.fixture
def partly_labelled(tmp_path) -> dict[str, Path]:
    """Sixty images of which six have a label."""
    (photos := tmp_path / "photos").mkdir()
    images = open_images("shapes:60")
    for index in range(60):
        Image.fromarray(images.get([index]).pixels[0].transpose(1, 2, 0)).save(photos / f"{index}.png")
    (tmp_path / "labels.csv").write_text("path,label\n" + "".join(f"{i}.png,{'ab'[i % 2]}\n" for i in range(6)))
    return {"train": photos, "labels": tmp_path / "labels.csv"}


def test_images_without_a_label_are_grey_in_every_figure(run, partly_labelled):
    """They were a class of their own on the map, under the name of another."""
    from echoless.reports.collect import collect
    from echoless.reports.payload import maps_of

    evaluate(run, **partly_labelled, metrics=("neighbours", "reconstruct", "tsne"), baselines=False)
    shown = frames(run / "figures" / "neighbours-trained.png", QUERIES, NEIGHBOURS)
    assert "grey" in {*chain(*shown)}
    with_label = [row for row in shown if {*row} != {"grey"}]
    assert len(with_label) <= 1, "one of the eight queries, at most, is one of the six"
    record = json.loads((run / "figures" / "tsne.json").read_text())
    assert sorted(record["labels"]) == [-1] * 54 + [0] * 3 + [1] * 3 and record["class_names"] == ["a", "b"]
    assert maps_of([collect(run)])["sets"][0]["classes"] == ["a", "b", "no label"]
    evaluate(run, **partly_labelled, metrics=("knn", "neighbours", "tsne"), baselines=False)
    assert {*chain(*frames(run / "figures" / "neighbours-trained.png", 6, 5))} <= {"green", "red"}
    assert sorted(json.loads((run / "figures" / "tsne.json").read_text())["labels"]) == [0] * 3 + [1] * 3


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
