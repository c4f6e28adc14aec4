"""Proves the segmentation probe against scikit-learn: its regression on patches, its mIoU on pixels.

Run alone: pytest tests/measures/test_segprobe.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import jaccard_score

from echoless.errors import DataError
from echoless.measures import (
    confusion_per_image,
    fit_segmentation_probe,
    labelled_miou,
    patch_classes,
    quick_probe,
    segment,
    upsample_labels,
)

GRID, CLASSES = (4, 4), 3


def scenes(images: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens (I, P, D) whose classes overlap, and masks (I, H, W) of 8 x 8 pixels, two to a patch and side."""
    generator = torch.Generator().manual_seed(seed)
    small = torch.randint(0, CLASSES, (images, *GRID), generator=generator)
    centres = 0.8 * torch.randn(CLASSES, 6, generator=torch.Generator().manual_seed(99))
    tokens = centres[small.flatten(1)] + torch.randn(images, 16, 6, generator=generator)
    return tokens, upsample_labels(small, 8, 8)


def test_a_patch_has_the_class_of_most_of_its_pixels():
    truth = torch.tensor([[[0, 2, 1, 1], [2, 2, 0, 0], [-1, -1, -1, 1], [-1, -1, 2, -1]]])
    # Three of four are 2; a tie takes the smaller; all void is void; of two known ones, one each, the smaller.
    assert patch_classes(truth, (2, 2), 3).tolist() == [[[2, 0], [-1, 1]]]


def test_majorities_are_those_of_numpy():
    truth = torch.randint(0, 5, (3, 12, 9), generator=torch.Generator().manual_seed(0))
    found = patch_classes(truth, (4, 3), 5)
    for image, row, column in np.ndindex(3, 4, 3):
        patch = truth[image, 3 * row : 3 * row + 3, 3 * column : 3 * column + 3]
        assert int(found[image, row, column]) == int(np.bincount(patch.flatten()).argmax())


def test_the_probe_and_its_pixel_miou_are_scikit_learns():
    tokens, truth = scenes(60, 1)
    held_out, judged = scenes(40, 2)
    probe = fit_segmentation_probe(tokens, truth, GRID, CLASSES, generator=torch.Generator().manual_seed(0))
    guess = segment(probe, held_out, GRID, (8, 8))
    theirs = LogisticRegression(C=1 / probe.settings["penalty"], max_iter=5000).fit(
        (tokens.flatten(0, 1) - probe.mean_D) * probe.scale_D, patch_classes(truth, GRID, CLASSES).flatten()
    )
    predicted = theirs.predict((held_out.flatten(0, 1) - probe.mean_D) * probe.scale_D)
    same = torch.from_numpy(predicted).view(40, *GRID).repeat_interleave(2, 1).repeat_interleave(2, 2)
    assert (guess == same).double().mean() > 0.99
    confusion = confusion_per_image(guess, judged, CLASSES)
    expected = jaccard_score(judged.flatten(), guess.flatten(), average="macro")
    assert labelled_miou(confusion.sum(dim=0)) == pytest.approx(expected, rel=1e-12)
    print(f"segmentation probe: mIoU {expected:.4f}, agreement with scikit-learn {(guess == same).double().mean():.4f}")
    assert 0.3 < expected < 0.95, "neither trivial nor perfect"


def look_alikes(images: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Each image has one class and a place of its own: whoever has seen a patch of it knows the others."""
    generator = torch.Generator().manual_seed(seed)
    classes = torch.randint(0, 2, (images,), generator=generator)
    own = torch.randn(images, 1, 64, generator=generator) + 0.2 * (2 * classes[:, None, None] - 1)
    tokens = own + 0.05 * torch.randn(images, 16, 64, generator=generator)
    return tokens, classes[:, None, None].expand(-1, 8, 8).contiguous()


def test_the_penalty_is_chosen_on_images_that_are_held_out():
    """On held-out patches of the same images the smallest penalty looked best, and was worse for new images."""
    tokens, truth = look_alikes(60, 0)
    held_out, judged = look_alikes(200, 1)
    by_image = fit_segmentation_probe(tokens, truth, GRID, 2, generator=torch.Generator().manual_seed(0))
    patches = quick_probe(
        tokens.flatten(0, 1), truth[:, ::2, ::2].flatten(), generator=torch.Generator().manual_seed(0)
    )
    right = [(segment(probe, held_out, GRID, (8, 8)) == judged).double().mean() for probe in (by_image, patches)]
    print(f"penalty by image {by_image.settings['penalty']:g}, by patch {patches.settings['penalty']:g}; {right}")
    assert by_image.settings["penalty"] > 10 * patches.settings["penalty"] and right[0] > right[1]
    few = fit_segmentation_probe(tokens[:19], truth[:19], GRID, 2, generator=torch.Generator().manual_seed(0))
    assert few.settings["penalty"] == 1.0, "of so few images none can be held out, however many patches they have"


def test_confusions_of_images_add_up():
    guess, truth = torch.tensor([[[0, 1]], [[1, 1]]]), torch.tensor([[[0, 0]], [[1, 0]]])
    assert confusion_per_image(guess, truth, 2).tolist() == [[[1, 0], [1, 0]], [[0, 0], [1, 1]]]


def test_bad_masks_are_refused_with_a_sentence():
    with pytest.raises(DataError, match=r"allowed: \(images, height, width\), 0 .. 1 and void"):
        patch_classes(torch.full((1, 4, 4), 3), (2, 2), 2)
    with pytest.raises(DataError, match=r"allowed: \(1 images, 4 patches, dimensions\)"):
        fit_segmentation_probe(
            torch.zeros(1, 5, 3), torch.zeros(1, 4, 4).long(), (2, 2), 2, generator=torch.Generator()
        )
