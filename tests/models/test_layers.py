"""The parts: patches go there and back, positions read the right axis, attention is attention."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from echoless.models import patchify, sincos_positions, unpatchify
from echoless.models.layers import Attention, resample_positions, take_rows


@pytest.mark.parametrize("shape", [(2, 3, 8, 8), (2, 1, 8, 12), (1, 5, 4, 20)])
def test_patches_go_there_and_back(shape, generator):
    images = torch.randn(shape, generator=generator)
    grid = (shape[2] // 4, shape[3] // 4)
    assert torch.equal(unpatchify(patchify(images, 4), 4, grid), images)


def test_a_linear_on_patches_is_a_strided_convolution(generator):
    images = torch.randn(2, 3, 8, 12, generator=generator)
    kernel = torch.randn(7, 3, 4, 4, generator=generator)
    ours = F.linear(patchify(images, 4), kernel.permute(0, 2, 3, 1).flatten(1))
    torch.testing.assert_close(ours, F.conv2d(images, kernel, stride=4).flatten(2).transpose(1, 2))


def test_image_sides_must_be_multiples_of_the_patch():
    with pytest.raises(ValueError, match="image size is 10 x 8; allowed: multiples of the patch size 4"):
        patchify(torch.zeros(1, 3, 10, 8), 4)


def test_positions_tell_column_then_row():
    table = sincos_positions((3, 5), 16).reshape(3, 5, 4, 4)
    np.testing.assert_allclose(table[2, 4, 0, 0], np.sin(4), atol=1e-6)
    np.testing.assert_allclose(table[2, 4, 1, 0], np.cos(4), atol=1e-6)
    np.testing.assert_allclose(table[2, 4, 2, 1], np.sin(2 * 10000 ** (-1 / 4)), atol=1e-6)


def test_positions_at_their_own_grid_are_untouched_and_at_another_have_its_size():
    table = sincos_positions((4, 6), 8)
    assert resample_positions(table, (4, 6), (4, 6)) is table
    assert resample_positions(table, (4, 6), (5, 2)).shape == (10, 8)


def test_attention_equals_torch_multihead_attention(generator):
    ours = Attention(24, 3)
    theirs = torch.nn.MultiheadAttention(24, 3, batch_first=True)
    for parameter in ours.parameters():
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.qkv.weight,
            "in_proj_bias": ours.qkv.bias,
            "out_proj.weight": ours.proj.weight,
            "out_proj.bias": ours.proj.bias,
        }
    )
    x = torch.randn(2, 9, 24, generator=generator)
    torch.testing.assert_close(ours(x), theirs(x, x, x)[0], rtol=1e-5, atol=1e-5)


def test_take_rows_is_gather(generator):
    x = torch.randn(3, 7, 5, generator=generator)
    ids = torch.stack([torch.randperm(7, generator=generator)[:4] for _ in range(3)])
    assert torch.equal(take_rows(x, ids), x.gather(1, ids[..., None].expand(-1, -1, 5)))
