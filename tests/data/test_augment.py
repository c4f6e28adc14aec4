"""Proves the draws (independent of rank, inside the image, of the stated distribution) and the scaling."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from scipy import stats

from echoless.data.augment import AugmentConfig, augment, centre_boxes, draw, random_boxes, resize_and_crop
from echoless.errors import ConfigError
from echoless.randomness import generator_for


def test_boxes_stay_inside_and_follow_the_distribution() -> None:
    config = AugmentConfig(scale=(0.3, 0.9), ratio=(0.8, 1.25), flip=0.25)
    shapes = np.tile([400, 400], (20_000, 1))
    boxes = random_boxes(draw(20_000, generator_for(0, "augment", 0)), shapes, config)
    assert (boxes.top_B >= 0).all() and (boxes.top_B + boxes.height_B <= 400).all()
    assert (boxes.left_B >= 0).all() and (boxes.left_B + boxes.width_B <= 400).all()
    area = boxes.height_B * boxes.width_B / 400**2
    # In a square, a box of up to 0.8 of the area fits with every allowed ratio: the draw there is uniform.
    inner = area[area < 0.75]
    assert stats.kstest(inner, stats.uniform(0.3, 0.45).cdf).pvalue > 1e-3
    ratio = np.log(boxes.width_B / boxes.height_B)[area < 0.75]
    assert stats.kstest(ratio, stats.uniform(np.log(0.8), np.log(1.25) - np.log(0.8)).cdf).pvalue > 1e-3
    assert abs(boxes.flip_B.mean() - 0.25) < 0.02


def test_an_image_too_narrow_for_any_box_gets_its_centre() -> None:
    config = AugmentConfig(scale=(0.9, 1.0), ratio=(1.0, 1.0))
    boxes = random_boxes(draw(4, generator_for(0, "augment", 0)), np.tile([100, 10], (4, 1)), config)
    assert (boxes.height_B == 10).all() and (boxes.width_B == 10).all() and (boxes.top_B == 45).all()


def test_a_box_that_does_not_fit_is_drawn_again_or_cut() -> None:
    """Half of a wide image at a ratio of 1/2 would be 400 high. The probe of He et al. 2022 cuts that to the image."""
    area, ratio, top, left = 0.5, 0.0, 0.75, 0.5
    uniform = np.tile([area, ratio, top, left], (1, 10))
    uniform[0, 4:8] = (0.5, 1.0, 0.0, 0.0)  # the second attempt: 400 wide, 200 high
    uniform = np.append(uniform, [[1.0]], axis=1)
    shape, wanted = np.array([[200, 800]]), {"scale": (0.0001, 1.0), "ratio": (0.5, 2.0)}
    again = random_boxes(uniform, shape, AugmentConfig(**wanted))
    assert [field.item() for field in again[:4]] == [0, 0, 200, 400]
    cut = random_boxes(uniform, shape, AugmentConfig(**wanted, cut_to_fit=True))
    assert [field.item() for field in cut[:4]] == [0, 300, 200, 200]


def test_centre_boxes_have_the_proportions_of_the_output() -> None:
    boxes = centre_boxes(np.array([[60, 80], [80, 60]]), (32, 32))
    assert boxes.top_B.tolist() == [0, 10] and boxes.left_B.tolist() == [10, 0]
    wide = centre_boxes(np.array([[60, 80]]), (16, 32))
    assert (wide.height_B.item(), wide.width_B.item()) == (40, 80)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_output_is_scaled_by_the_sample_type_and_normalised(dtype: type) -> None:
    image = np.full((1, 2, 8, 8), np.iinfo(dtype).max, dtype=dtype)
    image[:, 1] = 0
    result = resize_and_crop(image, size=(8, 8), mean=[0.5, 0.25], std=[0.5, 0.125])
    assert result.dtype == torch.float32
    torch.testing.assert_close(result[0, 0], torch.full((8, 8), 1.0))
    torch.testing.assert_close(result[0, 1], torch.full((8, 8), -2.0))


def test_evaluation_agrees_with_torch_interpolation() -> None:
    """A square image halved: torch's antialiased bilinear filter, which shares no code with ours or with Pillow."""
    image = np.random.default_rng(0).integers(0, 256, (1, 3, 64, 64), dtype=np.uint8)
    ours = resize_and_crop(image, size=(32, 32), mean=[0.0] * 3, std=[1.0] * 3)
    theirs = F.interpolate(torch.from_numpy(image) / 255, size=(32, 32), mode="bilinear", antialias=True)
    assert (ours - theirs).abs().max() < 0.5 / 255


def test_augmenting_a_slice_is_slicing_the_augmented() -> None:
    images = np.random.default_rng(0).integers(0, 256, (12, 3, 32, 32), dtype=np.uint8)
    uniform = draw(12, generator_for(3, "augment", 5))

    def run(part: slice) -> torch.Tensor:
        return augment(
            images[part], uniform[part], size=(32, 32), config=AugmentConfig(), mean=[0.4] * 3, std=[0.2] * 3
        )

    whole = run(slice(None))
    assert torch.equal(torch.cat([run(slice(0, 5)), run(slice(5, 12))]), whole)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2 if before == 1 else 1)
        assert torch.equal(run(slice(None)), whole)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ({"scale": (0.0, 1.0)}, "scale is"),
        ({"scale": (0.5, 1.5)}, "scale is"),
        ({"ratio": (2.0, 1.0)}, "ratio is"),
        ({"flip": 1.5}, "flip is 1.5"),
    ],
)
def test_impossible_settings_are_refused(setting: dict, sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        AugmentConfig(**setting)


def test_without_a_scale_an_image_is_flipped_and_never_cropped():
    """What diffusion trains on: the evaluation's view of the image, or its mirror image."""
    pixels = np.random.default_rng(0).integers(0, 256, (64, 3, 8, 8), dtype=np.uint8)
    uniform = draw(64, torch.Generator().manual_seed(0))
    mean, std = (0.5,) * 3, (0.5,) * 3
    seen = augment(pixels, uniform, size=(8, 8), config=AugmentConfig(scale=None), mean=mean, std=std)
    plain = torch.from_numpy(pixels.astype(np.float32)) / 127.5 - 1
    mirrored = torch.from_numpy(uniform[:, -1] < 0.5)
    assert 0 < mirrored.sum() < 64
    torch.testing.assert_close(seen, torch.where(mirrored[:, None, None, None], plain.flip(-1), plain))
