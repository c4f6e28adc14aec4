"""Masking hides exactly the share asked for, uniformly; the loss is the mean squared error on hidden patches."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from echoless.config import MaskedConfig, mae_preset
from echoless.models import patchify
from echoless.objectives import masked_loss, masking_from_noise, patch_targets, random_masking


def test_each_sample_hides_its_own_share(generator):
    masking = random_masking(64, 49, 0.75, generator)
    assert masking.keep_BK.shape == (64, 12) and masking.hidden_BM.shape == (64, 37)
    assert torch.equal(masking.order_BN.sort(dim=1).values, torch.arange(49).expand(64, -1))
    assert len({tuple(row.tolist()) for row in masking.keep_BK}) == 64


def test_every_patch_is_hidden_equally_often(generator):
    masking = random_masking(20_000, 16, 0.75, generator)
    shares = torch.bincount(masking.hidden_BM.flatten(), minlength=16) / 20_000
    assert (shares - 0.75).abs().max() < 0.02


def test_the_same_generator_gives_the_same_mask():
    one, two = (random_masking(4, 16, 0.5, torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one.order_BN, two.order_BN)


class Constant(nn.Module):
    """Predicts one value everywhere."""

    config = mae_preset("tiny-16", channels=1)

    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = value

    def forward(self, images, masking):
        return torch.full((*masking.hidden_BM.shape, 4), self.value)


def test_the_loss_is_the_squared_error_on_hidden_patches_alone(generator):
    images = torch.rand(3, 1, 16, 16, generator=generator)
    masking = random_masking(3, 64, 0.6, generator)
    loss = masked_loss(Constant(0.25), images, masking, MaskedConfig(normalize_pixels=False))
    patches = patchify(images, 2).double()
    errors = [((patches[b, i] - 0.25) ** 2).mean() for b in range(3) for i in masking.hidden_BM[b]]
    torch.testing.assert_close(loss.double(), torch.stack(errors).mean(), rtol=1e-6, atol=0)


def test_normalised_targets_have_zero_mean_and_unit_variance(generator):
    targets = patch_targets(torch.rand(2, 5, 48, generator=generator) * 3 + 1, normalize=True)
    torch.testing.assert_close(targets.mean(-1), torch.zeros(2, 5), rtol=0, atol=1e-5)
    torch.testing.assert_close(targets.var(-1), torch.ones(2, 5), rtol=1e-4, atol=0)


def test_normalised_targets_are_those_of_the_variance_of_torch(generator):
    """Also for a patch far from zero, where a one-pass variance would lose its digits."""
    patches = torch.rand(2, 5, 48, generator=generator) + torch.tensor([0.0, 100.0])[:, None, None]
    variance, mean = torch.var_mean(patches.double(), dim=-1, keepdim=True)
    expected = (patches.double() - mean) / (variance + 1e-6).sqrt()
    torch.testing.assert_close(patch_targets(patches, normalize=True).double(), expected, rtol=0, atol=2e-4)


def test_a_flat_patch_does_not_blow_up():
    assert patch_targets(torch.full((1, 1, 48), 0.5), normalize=True).abs().max() < 1e-3


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.1, 1.5])
def test_a_mask_ratio_outside_the_open_interval_is_refused(ratio):
    with pytest.raises(ValueError, match=rf"mask_ratio is {ratio}; allowed: a number in \(0, 1\)"):
        masking_from_noise(torch.rand(1, 16), ratio)
    with pytest.raises(ValueError, match=r"mask_ratio is .*; allowed: a number in \(0, 1\)"):
        MaskedConfig(mask_ratio=ratio)


def test_hiding_every_patch_is_refused():
    with pytest.raises(
        ValueError, match=r"mask_ratio 0.95 leaves none of 16 patches visible; .* mask_ratio 0.9375 at most"
    ):
        masking_from_noise(torch.rand(1, 16), 0.95)
