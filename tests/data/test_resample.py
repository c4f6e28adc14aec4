"""Proves the resampling against Pillow, and that a sample's bits do not depend on its company."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from PIL import Image

from echoless.data.resample import Boxes, resample, resize

Picture = Callable[..., np.ndarray]

# Pillow rounds to whole levels between its two passes (up to 0.5, spread by the second) and after them (0.5).
TOLERANCE = 1.1


def _boxes(*rows: tuple[float, float, float, float, bool]) -> Boxes:
    return Boxes(*(np.array(column) for column in zip(*rows)))


def _pillow(image_CHW: np.ndarray, box: tuple[float, float, float, float], size: tuple[int, int]) -> np.ndarray:
    top, left, height, width = box
    corners = (left, top, left + width, top + height)
    planes = [Image.fromarray(plane).resize(size[::-1], Image.Resampling.BILINEAR, corners) for plane in image_CHW]
    return np.stack([np.asarray(plane) for plane in planes])


@pytest.mark.parametrize("side", [8, 32, 64, 200])
@pytest.mark.parametrize("size", [(32, 32), (16, 24), (224, 96)])
def test_random_boxes_agree_with_pillow(side: int, size: tuple[int, int]) -> None:
    """Enlarging and shrinking, whole and fractional boxes, on noise, which hides no error."""
    rng = np.random.default_rng(side)
    images = rng.integers(0, 256, (6, 3, side, side + 5), dtype=np.uint8)
    heights, widths = rng.uniform(2, side, 6), rng.uniform(2, side + 5, 6)
    tops, lefts = rng.uniform(0, side - heights), rng.uniform(0, side + 5 - widths)
    ours = resample(images, Boxes(tops, lefts, heights, widths, np.zeros(6, bool)), size)
    theirs = [_pillow(image, box, size) for image, box in zip(images, zip(tops, lefts, heights, widths))]
    worst = np.abs(ours - np.stack(theirs)).max()
    print(f"crop side={side} size={size} worst difference from Pillow = {worst:.2f} levels of 255")
    assert worst <= TOLERANCE


def test_sixteen_bit_boxes_agree_with_pillows_floats() -> None:
    rng = np.random.default_rng(0)
    image = rng.integers(0, 65536, (2, 40, 50), dtype=np.uint16)
    ours = resample(image[None], _boxes((3, 4, 30, 20, False)), (16, 40))[0]
    planes = [
        Image.fromarray(plane.astype(np.float32)).resize((40, 16), Image.Resampling.BILINEAR, (4, 3, 24, 33))
        for plane in image
    ]
    worst = np.abs(ours - np.stack([np.asarray(plane) for plane in planes])).max()
    print(f"crop 16 bit worst difference from Pillow = {worst:.2f} levels of 65535")
    # Weights are multiples of 1/4096: at most half a unit for each of the few taps.
    assert worst <= 65535 / 4096 * 4


@pytest.mark.parametrize("side", [12, 150])
def test_a_whole_image_at_its_own_size_is_unchanged(side: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (4, side, side + 3), dtype=np.uint8)
    assert np.array_equal(resize(image, (side, side + 3)), image)


@pytest.mark.parametrize("side", [12, 150])
def test_a_flip_is_the_mirror_image(side: int) -> None:
    image = np.random.default_rng(0).integers(0, 256, (1, 3, side, side), dtype=np.uint8)
    plain = resample(image, _boxes((1, 2, 9.5, 8.25, False)), (10, 14))
    flipped = resample(image, _boxes((1, 2, 9.5, 8.25, True)), (10, 14))
    assert np.array_equal(plain[..., ::-1], flipped)


@pytest.mark.parametrize("value", [0, 77, 255])
def test_a_flat_image_stays_exactly_flat(value: int) -> None:
    image = np.full((1, 1, 90, 70), value, dtype=np.uint8)
    assert (resample(image, _boxes((0.3, 1.7, 80.2, 60.9, False)), (7, 33)) == value).all()


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("side", [20, 120])
def test_bits_do_not_depend_on_the_batch(side: int, dtype: type) -> None:
    """Alone, in a batch of 150 (more than one chunk), in a list of mixed sizes: the same bits."""
    rng = np.random.default_rng(1)
    images = rng.integers(0, np.iinfo(dtype).max, (150, 3, side, side), dtype=dtype, endpoint=True)
    lengths = rng.integers(4, side + 1, (2, 150))
    starts = np.floor(rng.random((2, 150)) * (side - lengths + 1))
    boxes = Boxes(starts[0], starts[1], lengths[0], lengths[1], rng.random(150) < 0.5)
    together = resample(images, boxes, (24, 24))
    for i in (0, 63, 64, 149):
        assert np.array_equal(resample(images[i : i + 1], boxes.take(np.array([i])), (24, 24))[0], together[i])
    mixed = [images[0], np.zeros((3, 9, 9), dtype), images[1]]
    small = Boxes(*(np.array([a[0], b, a[1]]) for a, b in zip(boxes, (0, 0, 9, 9, False))))
    assert np.array_equal(resample(mixed, small, (24, 24))[[0, 2]], together[:2])


@pytest.mark.parametrize("side", [1, 5, 32])
def test_every_box_of_whole_pixels_is_in_the_table(side: int) -> None:
    """Looked up for a stacked batch, computed for a list: the same bits for each box of a small image, both ways up."""
    starts, ends = np.triu_indices(side)
    boxes = Boxes(starts, starts, ends - starts + 1, ends - starts + 1, starts % 2 == 0)
    images = np.random.default_rng(0).integers(0, 256, (len(starts), 1, side, side), dtype=np.uint8)
    assert np.array_equal(resample(images, boxes, (8, 8)), resample(list(images), boxes, (8, 8)))


def test_sums_are_exact() -> None:
    """Every value is a whole number of 1/65536 levels: nothing was rounded, so nothing depends on the order of sums."""
    images = np.full((1, 3, 64, 64), 255, dtype=np.uint8)
    images[:, :, ::3, ::5] = 1
    values = resample(images, _boxes((1.37, 0.21, 55.5, 61.7, False)), (31, 17)).astype(np.float64) * 65536
    assert np.array_equal(values, np.rint(values))


@pytest.mark.parametrize("side", [24, 200])
def test_a_box_that_keeps_its_size_gives_the_pixels_themselves(side: int) -> None:
    """Scaled by numpy, and to the last bit what the filter gives: a mirrored box goes through it."""
    rng = np.random.default_rng(side)
    images = rng.integers(0, 256, (5, 3, side + 8, side), dtype=np.uint8)
    gain, shift = np.array([1 / 71, 1 / 255, 0.0123]), np.array([0.3, 1.7, 2.0])
    row = (4.0, 0.0, float(side), float(side))
    plain = resample(images, _boxes(*[(*row, False)] * 5), (side, side), gain, shift)
    mirrored = resample(images[..., ::-1], _boxes(*[(*row, True)] * 5), (side, side), gain, shift)
    expected = images[:, :, 4:-4].astype(np.float32) * gain.astype(np.float32).reshape(3, 1, 1)
    np.testing.assert_array_equal(plain, expected - shift.astype(np.float32).reshape(3, 1, 1))
    np.testing.assert_array_equal(plain, mirrored)
