"""Proves TokenCut against scipy's generalised eigenproblem and ndimage, and its scores against figures done by hand.

Run alone: pytest tests/measures/test_tokencut.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg
import scipy.ndimage
import torch
from sklearn.metrics import jaccard_score

from echoless.errors import ConfigError, DataError
from echoless.measures import bounding_boxes, box_iou, discover_objects, mask_iou, patch_graph, second_eigenvectors
from echoless.measures.tokencut import bipartition, one_component


def scene(seed: int, side: int = 8, noise: float = 0.3) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (1, P, D) of two directions plus noise, and the rectangle (h, w) of the second."""
    generator = torch.Generator().manual_seed(seed)
    truth = torch.zeros(side, side, dtype=torch.bool)
    truth[2:6, 1:4] = True
    directions = torch.linalg.qr(torch.randn(16, 2, generator=generator)).Q.T
    tokens = directions[truth.flatten().long()] + noise * torch.randn(side * side, 16, generator=generator) / 4
    return tokens[None], truth


@pytest.mark.parametrize("seed", range(5))
def test_the_second_eigenvector_is_the_one_of_scipys_generalised_problem(seed):
    tokens = torch.randn(2, 30, 6, generator=torch.Generator().manual_seed(seed))
    edges = patch_graph(tokens)
    for ours, graph in zip(second_eigenvectors(edges).numpy(), edges.numpy()):
        degrees = np.diag(graph.sum(axis=1))
        values, vectors = scipy.linalg.eigh(degrees - graph, degrees)
        theirs = vectors[:, 1] * np.sign(vectors[:, 1] @ ours)
        assert values[2] - values[1] > 1e-6, "the case must have one answer"
        np.testing.assert_allclose(ours, theirs, atol=1e-9)


def test_edges_are_one_above_the_threshold_and_tiny_below():
    tokens = torch.tensor([[[1.0, 0.0], [2.0, 0.0], [0.1, 1.0], [0.3, 1.0]]])
    similar = torch.nn.functional.cosine_similarity(tokens[0][:, None], tokens[0][None], dim=2)
    assert patch_graph(tokens, 0.2)[0].tolist() == np.where(similar.numpy() > 0.2, 1.0, 1e-5).tolist()


@pytest.mark.parametrize("seed", range(4))
def test_an_object_of_its_own_direction_is_found_exactly(seed):
    tokens, truth = scene(seed)
    assert discover_objects(tokens, (8, 8))[0].equal(truth)
    assert discover_objects(tokens, (8, 8), component="seed")[0].equal(truth)


def test_the_side_of_the_largest_entry_is_the_foreground_whatever_the_sign():
    vector = torch.tensor([[0.1, 0.1, 0.1, -0.9, -0.2]])
    for sign in (1, -1):
        foreground, seed = bipartition(sign * vector)
        assert foreground.tolist() == [[False, False, False, True, True]] and seed.tolist() == [3]


def test_components_are_those_of_scipy_and_the_largest_or_the_seeds_own_is_kept():
    foreground = torch.rand(12, 12, generator=torch.Generator().manual_seed(0)) < 0.45
    labels, count = scipy.ndimage.label(foreground.numpy())
    sizes = [int((labels == number).sum()) for number in range(1, count + 1)]
    assert int(one_component(foreground).sum()) == max(sizes)
    for seed in foreground.flatten().nonzero().flatten().tolist():
        assert one_component(foreground, seed).numpy().tolist() == (labels == labels.flat[seed]).tolist()


def test_boxes_and_their_overlap():
    masks = torch.zeros(2, 6, 7, dtype=torch.bool)
    masks[0, 1:3, 2:6] = True
    masks[1, 5, 0] = True
    assert bounding_boxes(masks).tolist() == [[1, 2, 3, 6], [5, 0, 6, 1]]
    others = torch.tensor([[0, 2, 3, 4], [5, 0, 6, 1]])
    # Shared 2 x 2 = 4 of 8 + 6 - 4; the second is the same box.
    assert box_iou(bounding_boxes(masks), others).tolist() == pytest.approx([4 / 10, 1.0])
    assert box_iou(torch.tensor([[0, 0, 1, 1]]), torch.tensor([[3, 3, 4, 4]])).tolist() == [0.0]


def test_the_overlap_of_masks_is_scikit_learns_jaccard_index():
    generator = torch.Generator().manual_seed(1)
    ours, truth = (torch.rand(5, 9, 9, generator=generator) < share for share in (0.4, 0.6))
    expected = [jaccard_score(t.flatten(), o.flatten()) for o, t in zip(ours, truth)]
    assert mask_iou(ours, truth).tolist() == pytest.approx(expected, rel=1e-12)
    empty = torch.zeros(1, 2, 2, dtype=torch.bool)
    assert mask_iou(empty, empty).tolist() == [1.0]


def test_bad_input_is_refused_with_a_sentence():
    with pytest.raises(DataError, match=r"allowed: \(images, 9 patches, dimensions\)"):
        discover_objects(torch.zeros(1, 8, 4), (3, 3))
    with pytest.raises(DataError, match="not finite"):
        discover_objects(torch.full((1, 9, 4), torch.nan), (3, 3))
    with pytest.raises(ConfigError, match="allowed: largest, seed"):
        discover_objects(torch.ones(1, 9, 4), (3, 3), component="all")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="no bounding box"):
        bounding_boxes(torch.zeros(1, 2, 2, dtype=torch.bool))
    with pytest.raises(DataError, match=r"have shapes .*; they must be equal"):
        mask_iou(torch.zeros(1, 2, 2, dtype=torch.bool), torch.zeros(1, 2, 3, dtype=torch.bool))
