"""Where is the object? TokenCut (arXiv:2202.11539): the normalised cut of an image's own patch tokens.

Patches are nodes, joined by 1 where their cosine similarity exceeds tau and by a tiny weight where not. The second
smallest solution y of (D - A) y = lambda D y is cut at its mean; the side that holds the entry of largest size is the
foreground, and one connected component of it is the object. `component="largest"` takes the largest one;
`"seed"`, as in the authors' code, the one with the entry of largest size.

Shapes: I images, P = h * w patches, D dimensions, H x W pixels. Boxes are (top, left, bottom, right), ends excluded.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.errors import ConfigError, DataError
from echoless.measures.inputs import check_features

TAU = 0.2
WEAK_EDGE = 1e-5  # keeps the graph in one piece
Component = Literal["largest", "seed"]


def discover_objects(
    tokens_IPD: Tensor, grid: tuple[int, int], *, tau: float = TAU, component: Component = "largest"
) -> Tensor:
    """masks_Ihw, bool: the patches of the one object found in each image; never empty."""
    if component not in ("largest", "seed"):
        raise ConfigError(f"component is {component!r}; allowed: largest, seed")
    if tokens_IPD.ndim != 3 or tokens_IPD.shape[1] != grid[0] * grid[1]:
        raise DataError(
            f"tokens has shape {tuple(tokens_IPD.shape)}; allowed: (images, {grid[0] * grid[1]} patches, dimensions)"
        )
    check_features("tokens", tokens_IPD.flatten(0, 1))
    vectors_IP = second_eigenvectors(patch_graph(tokens_IPD, tau))
    foreground_IP, seed_I = bipartition(vectors_IP)
    objects = [
        one_component(side.view(grid), None if component == "largest" else int(seed))
        for side, seed in zip(foreground_IP, seed_I)
    ]
    return torch.stack(objects)


# Eq. (4), arXiv:2202.11539.
def patch_graph(tokens_IPD: Tensor, tau: float = TAU) -> Tensor:
    """edges_IPP, float64: 1 above tau, 1e-5 elsewhere."""
    unit_IPD = F.normalize(tokens_IPD.detach().double(), dim=2)
    strong_IPP = unit_IPD @ unit_IPD.transpose(1, 2) > tau
    return strong_IPP.double().clamp(min=WEAK_EDGE)


# Eq. (2) and (3), arXiv:2202.11539.
def second_eigenvectors(edges_IPP: Tensor) -> Tensor:
    """y_IP with (D - A) y = lambda D y for the second smallest lambda, at unit length under D.

    With z = D^1/2 y it is an ordinary symmetric problem, I - D^-1/2 A D^-1/2.
    """
    root_IP = edges_IPP.sum(dim=2).rsqrt()
    walk_IPP = root_IP[:, :, None] * edges_IPP * root_IP[:, None, :]
    _, vectors_IPP = torch.linalg.eigh(torch.eye(edges_IPP.shape[1], dtype=edges_IPP.dtype) - walk_IPP)
    return root_IP * vectors_IPP[:, :, 1]


def bipartition(vectors_IP: Tensor) -> tuple[Tensor, Tensor]:
    """foreground_IP, bool, and the patch of largest size in each image, which is in it. The sign does not matter."""
    seed_I = vectors_IP.abs().argmax(dim=1)
    above_IP = vectors_IP > vectors_IP.mean(dim=1, keepdim=True)
    return above_IP == above_IP.gather(1, seed_I[:, None]), seed_I


def one_component(foreground_hw: Tensor, seed: int | None = None) -> Tensor:
    """The connected component (four neighbours) that holds patch `seed`, or the largest, the first among equals."""
    from scipy.ndimage import label

    labels, count = label(foreground_hw.numpy())
    if seed is not None:
        chosen = int(labels.flat[seed])
    else:
        chosen = 1 + int(np.bincount(labels.ravel(), minlength=count + 1)[1:].argmax())
    return torch.from_numpy(labels == chosen)


def bounding_boxes(masks_IHW: Tensor) -> Tensor:
    """boxes_I4 of masks that are not empty."""
    if not masks_IHW.flatten(1).any(dim=1).all():
        raise DataError("a mask is empty, so it has no bounding box")
    ends = []
    for axis in (2, 1):  # rows that hold a pixel, then columns
        hit = masks_IHW.any(dim=axis).byte()
        ends.append((hit.argmax(dim=1), hit.shape[1] - hit.flip(1).argmax(dim=1)))
    (top, bottom), (left, right) = ends
    return torch.stack([top, left, bottom, right], dim=1)


def box_iou(boxes_I4: Tensor, others_I4: Tensor) -> Tensor:
    """iou_I of each box with the other of the same image."""
    first = torch.maximum(boxes_I4[:, :2], others_I4[:, :2])
    last = torch.minimum(boxes_I4[:, 2:], others_I4[:, 2:])
    shared = (last - first).clamp(min=0).prod(dim=1).double()
    areas = [(boxes[:, 2:] - boxes[:, :2]).prod(dim=1) for boxes in (boxes_I4, others_I4)]
    return shared / (areas[0] + areas[1] - shared)


def mask_iou(masks_IHW: Tensor, others_IHW: Tensor) -> Tensor:
    """iou_I of each mask with the other of the same image; 1 where both are empty."""
    if masks_IHW.shape != others_IHW.shape:
        shapes = f"{tuple(masks_IHW.shape)} and {tuple(others_IHW.shape)}"
        raise DataError(f"masks have shapes {shapes}; they must be equal")
    both = (masks_IHW & others_IHW).flatten(1).sum(dim=1).double()
    either = (masks_IHW | others_IHW).flatten(1).sum(dim=1)
    return torch.where(either > 0, both / either.clamp(min=1), 1.0)
