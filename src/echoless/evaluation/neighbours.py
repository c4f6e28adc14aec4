"""Which images look alike to the encoder? A few queries, each with its nearest neighbours, as one picture."""

from __future__ import annotations

import torch
from torch import Tensor

from echoless.config.metrics import Metric
from echoless.data import plain_images
from echoless.data.subset import draw_rows
from echoless.errors import DataError
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.extract import FeatureSet
from echoless.measures.knn import nearest_neighbours
from echoless.reports.pictures import gallery

QUERIES, NEIGHBOURS = 8, 9


def draw_neighbours(source: FeatureSource) -> list[Metric]:
    """Queries from the test set, or from the training set without one; neighbours from the training set."""
    evaluation, view = source.evaluation, source.view
    queries, bank = source.test_or_train[view], source.train[view]
    rows_Q = draw_rows(len(queries.ids_N), QUERIES, queries.labels_N, seed=evaluation.options.seed)
    found_QK = neighbours_of(queries, rows_Q, bank, alone=source.test is not None)
    size = source.encoder.image_size
    asked = plain_images(evaluation.test_or_train, queries.ids_N[rows_Q].tolist(), size)
    near = plain_images(evaluation.train, bank.ids_N[found_QK.flatten()].tolist(), size)
    same_QK = None
    if queries.labels_N is not None and bank.labels_N is not None:
        same_QK = bank.labels_N[found_QK] == queries.labels_N[rows_Q][:, None]
    path = evaluation.figures / f"neighbours-{source.name.replace(' ', '-')}.png"
    evaluation.say(f"written: {gallery(path, asked, near.unflatten(0, tuple(found_QK.shape)), same_QK)}")
    return []


def check_neighbours(evaluation: Evaluation) -> None:
    if evaluation.train.usable < 2:
        raise DataError("neighbours needs two images or more")


def neighbours_of(queries: FeatureSet, rows_Q: Tensor, bank: FeatureSet, *, alone: bool) -> Tensor:
    """(Q, K) rows of the bank, the most similar first. Not `alone`: queries are in the bank, and are left out."""
    vectors_QD = torch.from_numpy(queries.features_ND[rows_Q.numpy()])
    count = min(NEIGHBOURS + (not alone), len(bank.ids_N))
    _, found_QK = nearest_neighbours(bank.features_ND, vectors_QD, k=count)
    if alone:
        return found_QK
    kept = [[row for row in found if row != own][: count - 1] for found, own in zip(found_QK.tolist(), rows_Q.tolist())]
    return torch.tensor(kept)
