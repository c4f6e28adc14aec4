"""Which plane shows most of the features? That of their two leading principal components.

Shapes: N rows, D dimensions.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.measures.inputs import Rows, check_features, read_rows


def principal_plane(features_ND: Rows) -> tuple[Tensor, Tensor]:
    """mean_D and axes_D2, so that (features - mean) @ axes are places on a map; the first axis has most variance.

    An axis and its negative are equally good: the one whose largest entry is positive is taken.
    """
    check_features("features", features_ND)
    rows_ND = read_rows(features_ND, 0, len(features_ND), torch.float64)
    mean_D = rows_ND.mean(dim=0)
    centred_ND = rows_ND - mean_D
    axes_DD = torch.linalg.eigh(centred_ND.T @ centred_ND).eigenvectors.flip(1)  # by falling variance
    axes_D2 = F.pad(axes_DD[:, :2], (0, max(0, 2 - axes_DD.shape[1])))
    largest = axes_D2.gather(0, axes_D2.abs().argmax(dim=0, keepdim=True))
    return mean_D.float(), (axes_D2 * largest.sign()).float()
