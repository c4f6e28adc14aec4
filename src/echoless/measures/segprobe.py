"""How well does a linear layer on frozen patch features segment? Fitted on patches, scored on pixels.

The label of a patch is the class of most of its pixels. The probe is `quick_probe`, logistic regression to convergence;
its class for each patch of a held-out image is enlarged to the pixels and compared with the masks.

Shapes: I images, P = h * w patches, D dimensions, H x W pixels, C classes.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.errors import DataError
from echoless.measures.probe import LinearProbe, quick_probe
from echoless.measures.segmentation import VOID, confusion_matrix, upsample_labels


def patch_classes(truth_IHW: Tensor, grid: tuple[int, int], classes: int) -> Tensor:
    """classes_Ihw: the class of most pixels of each patch, the smaller among equals; void where all pixels are."""
    if truth_IHW.ndim != 3 or int(truth_IHW.min()) < VOID or int(truth_IHW.max()) >= classes:
        found = f"shape {tuple(truth_IHW.shape)} and values {int(truth_IHW.min())} .. {int(truth_IHW.max())}"
        raise DataError(f"masks have {found}; allowed: (images, height, width), 0 .. {classes - 1} and void")
    most_Ihw = torch.zeros(len(truth_IHW), *grid, dtype=torch.float64)
    found_Ihw = torch.full(most_Ihw.shape, VOID)
    for number in range(classes):  # one after the other: all shares of many classes would fill the memory
        share_Ihw = F.adaptive_avg_pool2d((truth_IHW == number).double(), grid)
        found_Ihw = torch.where(share_Ihw > most_Ihw, number, found_Ihw)
        most_Ihw = torch.maximum(most_Ihw, share_Ihw)
    return found_Ihw


def fit_segmentation_probe(
    tokens_IPD: Tensor,
    truth_IHW: Tensor,
    grid: tuple[int, int],
    classes: int,
    *,
    generator: torch.Generator,
    groups_I: Tensor | None = None,
) -> LinearProbe:
    """The probe of the patches of the training images.

    Its penalty is chosen on images that are held out: patches of one image resemble each other, so that those of
    another half of it would ask for too small a penalty. groups_I: images of one group, copies, are held out together.
    """
    _check(tokens_IPD, truth_IHW, grid)
    labels_T = patch_classes(truth_IHW, grid, classes).flatten()
    known_T = labels_T != VOID
    images_I = torch.arange(len(truth_IHW)) if groups_I is None else groups_I
    images_T = images_I.repeat_interleave(grid[0] * grid[1])[known_T]
    features_TD = tokens_IPD.flatten(0, 1)[known_T]
    return quick_probe(features_TD, labels_T[known_T], generator=generator, groups_N=images_T)


def segment(probe: LinearProbe, tokens_IPD: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> Tensor:
    """classes_IHW: the probe's class of every patch, enlarged to the pixels."""
    labels_Ihw = probe.predict(tokens_IPD.flatten(0, 1)).view(len(tokens_IPD), *grid)
    return upsample_labels(labels_Ihw, *size)


def confusion_per_image(guess_IHW: Tensor, truth_IHW: Tensor, classes: int) -> Tensor:
    """confusion_ICC: pixels said to be i (row) that are j (column), per image, for bootstrap over images."""
    none_CC = torch.zeros(classes, classes, dtype=torch.int64)  # of an image without a labelled pixel
    return torch.stack(
        [
            confusion_matrix(guess_HW, truth_HW, classes, classes) if bool((truth_HW != VOID).any()) else none_CC
            for guess_HW, truth_HW in zip(guess_IHW, truth_IHW)
        ]
    )


def _check(tokens_IPD: Tensor, truth_IHW: Tensor, grid: tuple[int, int]) -> None:
    if tokens_IPD.ndim != 3 or tokens_IPD.shape[:2] != (len(truth_IHW), grid[0] * grid[1]):
        allowed = f"({len(truth_IHW)} images, {grid[0] * grid[1]} patches, dimensions)"
        raise DataError(f"tokens has shape {tuple(tokens_IPD.shape)}; allowed: {allowed}")
