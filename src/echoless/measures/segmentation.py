"""How well do unsupervised clusters of tokens match the masks? k-means, an assignment of clusters to classes, and mIoU.

IoU of a class is TP / (TP + FP + FN) over all images together; mIoU is its mean over the classes that occur in the
masks or in the predictions. Pixels whose label is `void` are left out everywhere.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.errors import DataError
from echoless.measures.inputs import check_count, check_features

VOID = -1


class Segmentation(NamedTuple):
    """mIoU, and the class that each cluster stands for (-1: none)."""

    miou: float
    class_of_cluster: Tensor


def cluster_tokens(vectors_TK: Tensor, clusters: int, *, seed: int) -> Tensor:
    """k-means over the first `clusters` dimensions of all tokens of all images; one cluster number per token."""
    from sklearn.cluster import KMeans
    from threadpoolctl import threadpool_limits

    check_count("clusters", clusters)
    check_count("seed", seed, at_least=0)
    check_features("vectors", vectors_TK, at_least=clusters)
    points = vectors_TK[:, :clusters].detach().double().numpy()
    # One thread, because sums over threads are added in the order in which they happen to finish.
    with threadpool_limits(limits=1):
        labels = KMeans(clusters, random_state=seed, n_init=10).fit_predict(points)
    return torch.from_numpy(labels).long()


def upsample_labels(labels_IHW: Tensor, height: int, width: int) -> Tensor:
    """Nearest-neighbour enlargement to the size of the masks."""
    return F.interpolate(labels_IHW.unsqueeze(1).double(), size=(height, width), mode="nearest").squeeze(1).long()


def confusion_matrix(clusters_X: Tensor, truth_X: Tensor, clusters: int, classes: int, void: int = VOID) -> Tensor:
    """Pixels in cluster i (row) and class j (column); arguments of any, equal, shape."""
    if clusters_X.shape != truth_X.shape:
        raise DataError(
            f"clusters and masks have shapes {tuple(clusters_X.shape)} and {tuple(truth_X.shape)}; they must be equal"
        )
    kept = truth_X != void
    cluster, label = clusters_X[kept].long(), truth_X[kept].long()
    if len(label) == 0:
        raise DataError("the masks hold void pixels only; at least one pixel must be labelled")
    for name, values, count in (("clusters", cluster, clusters), ("masks", label, classes)):
        if int(values.min()) < 0 or int(values.max()) >= count:
            raise DataError(
                f"{name} holds {int(values.min())} .. {int(values.max())}; allowed: 0 .. {count - 1} and void"
            )
    return (cluster * classes + label).bincount(minlength=clusters * classes).view(clusters, classes)


def hungarian_miou(confusion: Tensor) -> Segmentation:
    """Each cluster stands for at most one class and each class for at most one cluster; most pixels right in total."""
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(confusion.numpy(), maximize=True)
    class_of_cluster = np.full(len(confusion), -1)
    class_of_cluster[rows] = columns
    return _score(confusion, torch.from_numpy(class_of_cluster))


def many_to_one_miou(confusion: Tensor) -> Segmentation:
    """Every cluster stands for the class of most of its pixels, the smaller among equals; an upper, easier measure."""
    return _score(confusion, torch.where(confusion.sum(dim=1) > 0, confusion.argmax(dim=1), -1))


def labelled_miou(confusion: Tensor) -> float:
    """Of predictions that are classes already: row i is what was said to be class i."""
    return _score(confusion, torch.arange(len(confusion))).miou


def _score(confusion: Tensor, class_of_cluster: Tensor) -> Segmentation:
    classes = confusion.shape[1]
    predicted = torch.zeros(classes, classes, dtype=torch.int64)
    used = class_of_cluster >= 0
    predicted.index_add_(0, class_of_cluster[used], confusion[used])  # pixels said to be i that are j
    right = predicted.diagonal().double()
    union = predicted.sum(dim=1) + confusion.sum(dim=0) - right
    occurs = union > 0
    return Segmentation(float((right[occurs] / union[occurs]).mean()), class_of_cluster)
