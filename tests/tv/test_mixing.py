"""Mixup, cutmix, label smoothing and the rectangles of random erasing are timm's, with which He et al. 2022 fine-tune.

Run: make test-tv
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

timm_mixup = pytest.importorskip("timm.data.mixup", exc_type=ImportError)
timm_erasing = pytest.importorskip("timm.data.random_erasing", exc_type=ImportError)
timm_loss = pytest.importorskip("timm.loss", exc_type=ImportError)

from echoless.config.supervised import SupervisedConfig  # noqa: E402
from echoless.objectives.supervised import SupervisedObjective, erase, mix  # noqa: E402

CLASSES, SIDE = 10, 32


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, 3, SIDE, SIDE, generator=generator)
    return images, torch.randint(0, CLASSES, (8,), generator=generator)


@pytest.mark.parametrize("cut", [False, True])
@pytest.mark.parametrize("weight", [0.2, 0.5, 0.9])
def test_a_mixed_batch_and_its_loss_are_timms(batch, cut: bool, weight: float, monkeypatch) -> None:
    """The weights are such that a box has an even side: of an odd one, the timm of He et al. 2022 (0.3.2) and ours
    leave out a row and a column that newer versions paste too."""
    images, labels = batch
    place = (0.3, 0.8)  # centre of the box, as shares of height and width
    theirs = timm_mixup.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
    monkeypatch.setattr(theirs, "_params_per_batch", lambda: (weight, cut))
    centres = iter(place)
    monkeypatch.setattr(timm_mixup.np.random, "randint", lambda low, high, size=None: int(next(centres) * high))
    expected, targets = theirs(images.clone(), labels)
    uniform = torch.tensor([[*place, 0, 0, 0, 0, 0, 0]]).expand(len(images), 8)
    chosen = torch.tensor([weight, float(cut)]).expand(len(images), 2)
    mixed, hot = mix(images, F.one_hot(labels, CLASSES).float(), chosen, uniform)
    torch.testing.assert_close(mixed, expected, rtol=0, atol=1e-6)
    logits = torch.randn(len(images), CLASSES, generator=torch.Generator().manual_seed(1))
    smoothed = hot * 0.9 + 0.1 / CLASSES
    ours, loss = F.cross_entropy(logits, smoothed), timm_loss.SoftTargetCrossEntropy()(logits, targets)
    torch.testing.assert_close(ours, loss, rtol=1e-5, atol=1e-6)


def test_mixup_and_cutmix_are_chosen_and_weighted_as_by_timm() -> None:
    """Each in half of the batches, with weights of the same distributions."""
    theirs = timm_mixup.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=CLASSES)
    np.random.seed(0)
    drawn = np.array([theirs._params_per_batch() for _ in range(4000)], dtype=float)
    objective = SupervisedObjective(SupervisedConfig(mixup=0.8, cutmix=1.0), CLASSES, 0)
    ours = np.array([objective.draw(1, 0, step)["mix"][0].tolist() for step in range(4000)])
    assert abs(ours[:, 1].mean() - drawn[:, 1].mean()) < 0.04
    for cut in (0.0, 1.0):
        mine, other = (rows[rows[:, 1] == cut, 0] for rows in (ours, drawn))
        quantiles = np.linspace(0.05, 0.95, 19)
        assert np.abs(np.quantile(mine, quantiles) - np.quantile(other, quantiles)).max() < 0.05


def test_erased_rectangles_are_as_large_as_timms() -> None:
    """A quarter of the images; the same distribution of areas. Noise has one value for each pixel and channel."""
    count, images = 4000, torch.full((4000, 1, SIDE, SIDE), 9.0)
    generator = torch.Generator().manual_seed(0)
    seeds = torch.randint(2**62, (count,), generator=generator)
    ours = erase(images, torch.rand(count, 8, generator=generator), seeds, 0.25)
    torch.manual_seed(0)
    np.random.seed(0)
    timm_erasing.random.seed(0)
    theirs = timm_erasing.RandomErasing(probability=0.25, mode="pixel", device="cpu")(images.clone())
    shares = [(erased != 9).flatten(1).float().mean(dim=1) for erased in (ours, theirs)]
    mine, other = (share[share > 0].numpy() for share in shares)
    assert abs(len(mine) - len(other)) < 0.04 * count
    quantiles = np.linspace(0.05, 0.95, 19)
    assert np.abs(np.quantile(mine, quantiles) - np.quantile(other, quantiles)).max() < 0.025
