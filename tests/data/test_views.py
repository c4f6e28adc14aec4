"""Proves the views: colours against colorsys, changes against Pillow, blur against scipy; and that a view is a function
of (seed, step, place) alone, whatever the batch is cut into.

Run alone: pytest tests/data/test_views.py.
"""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from scipy.ndimage import gaussian_filter1d

from echoless.config import ViewConfig
from echoless.data import Loader, draw_views, make_view, open_images
from echoless.data.views import blur, brightness, contrast, saturation, solarise, turn_hue
from echoless.errors import ConfigError
from echoless.randomness import generator_for

PLAIN = {"jitter": 0.0, "grey": 0.0, "blur": 0.0, "solarise": 0.0}


def levels(count: int = 3, channels: int = 3, side: int = 9) -> np.ndarray:
    values = np.random.default_rng(0).integers(0, 256, (count, channels, side, side))
    return (values / 255).astype(np.float32)


def pillow(image_CHW: np.ndarray) -> Image.Image:
    return Image.fromarray(np.rint(image_CHW.transpose(1, 2, 0) * 255).astype(np.uint8))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [(brightness, ImageEnhance.Brightness), (contrast, ImageEnhance.Contrast), (saturation, ImageEnhance.Color)],
)
@pytest.mark.parametrize("factor", [0.6, 1.0, 1.4])
def test_brightness_contrast_and_saturation_are_pillows(ours, theirs, factor):
    images = levels()
    for before, after in zip(images, ours(images, np.full(3, factor, np.float32))):
        expected = np.asarray(theirs(pillow(before)).enhance(factor)).transpose(2, 0, 1) / 255
        # Pillow rounds the grey version and the result to whole levels.
        np.testing.assert_allclose(after, expected, atol=1.6 / 255)


def test_the_hue_turns_as_in_colorsys():
    images = levels(count=2)
    turned = turn_hue(images, np.array([0.1, -0.37]))
    for image, after, turn in zip(images, turned, (0.1, -0.37)):
        for y, x in np.ndindex(9, 9):
            hue, saturated, value = colorsys.rgb_to_hsv(*image[:, y, x].astype(float))
            expected = colorsys.hsv_to_rgb((hue + turn) % 1, saturated, value)
            np.testing.assert_allclose(after[:, y, x], expected, atol=2e-6)


def test_grey_pixels_have_no_hue_to_turn():
    grey = np.repeat(levels(channels=1), 3, axis=1)
    np.testing.assert_allclose(turn_hue(grey, np.full(3, 0.3)), grey, atol=1e-7)


def test_every_image_is_blurred_with_its_own_gaussian():
    images, sigmas = levels(side=16), np.array([0.4, 1.0, 2.0])
    for image, after, sigma in zip(images, blur(images, sigmas, 2.0), sigmas):
        expected = image.astype(np.float64)
        for axis in (1, 2):
            expected = gaussian_filter1d(expected, sigma, axis=axis, mode="nearest", radius=6)
        np.testing.assert_allclose(after, expected, atol=1e-6)


def test_solarising_inverts_the_upper_half_as_pillow_does():
    images = levels()
    for image, after in zip(images, solarise(images)):
        expected = np.asarray(ImageOps.solarize(pillow(image), 128)).transpose(2, 0, 1) / 255
        np.testing.assert_allclose(after, expected, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
def test_any_number_of_channels_and_both_depths_give_finite_views(channels, kind):
    pixels = np.random.default_rng(1).integers(0, np.iinfo(kind).max, (6, channels, 20, 17)).astype(kind)
    view = ViewConfig(size=(12, 8), jitter=1.0, grey=0.5, blur=0.5, solarise=0.5)
    (uniform,) = draw_views(6, 1, generator_for(0, "augment", 0))
    out = make_view(pixels, uniform, view, mean=[0.0] * channels, std=[1.0] * channels)
    assert out.shape == (6, channels, 12, 8) and out.dtype == torch.float32
    assert out.isfinite().all() and float(out.min()) >= 0 and float(out.max()) <= 1


def test_probabilities_are_met_and_a_view_without_changes_is_the_crop_alone():
    pixels = np.full((4000, 3, 4, 4), 200, np.uint8)
    pixels[:, 0] = 50
    (uniform,) = draw_views(4000, 1, generator_for(3, "augment", 0))
    plain = make_view(pixels, uniform, ViewConfig(size=(4, 4), **PLAIN), mean=[0.0] * 3, std=[1.0] * 3)
    np.testing.assert_allclose(plain.numpy(), pixels / 255, atol=1e-6)
    for name, share in (("grey", 0.2), ("solarise", 0.3), ("jitter", 0.8)):
        view = ViewConfig(size=(4, 4), **PLAIN | {name: share})
        changed = make_view(pixels, uniform, view, mean=[0.0] * 3, std=[1.0] * 3)
        seen = float(((changed - plain).abs().amax(dim=(1, 2, 3)) > 1e-6).double().mean())
        assert abs(seen - share) < 0.03, name


def test_views_of_a_step_are_the_same_for_any_number_of_processes_and_workers():
    images = open_images("shapes:60")
    views = (ViewConfig(size=(32, 32), blur=1.0), ViewConfig(size=(32, 32), solarise=0.2), ViewConfig(size=(16, 16)))

    def parts(rank: int, world: int, workers: int, first: int = 0) -> list:
        loader = Loader(
            images,
            size=(32, 32),
            batch_size=7,
            seed=5,
            mean=[0.5] * 3,
            std=[0.2] * 3,
            views=views,
            workers=workers,
            rank=rank,
            world=world,
        )
        return list(loader.batches(first, 9))

    def joined(name: str, world: int, workers: int) -> torch.Tensor:
        batches = [parts(rank, world, workers) for rank in range(world)]
        pieces = [getattr(b, name) if name == "images_BCHW" else b.views[name] for step in zip(*batches) for b in step]
        return torch.cat(pieces)

    whole = {name: joined(name, 1, 0) for name in ("images_BCHW", "view01", "view02")}
    assert [tuple(view.shape[1:]) for view in whole.values()] == [(3, 32, 32), (3, 32, 32), (3, 16, 16)]
    assert not whole["images_BCHW"].equal(whole["view01"])
    for world, workers in ((1, 2), (2, 0), (3, 1)):
        assert all(joined(name, world, workers).equal(view) for name, view in whole.items()), (world, workers)
    resumed = parts(0, 1, 0, first=4)
    assert torch.cat([batch.views["view02"] for batch in resumed]).equal(whole["view02"][4 * 7 :])


def test_wrong_settings_are_refused_with_a_sentence():
    for wrong in ({"scale": (0.0, 1.0)}, {"grey": 1.5}, {"hue": 0.6}, {"blur_sigma": (2.0, 1.0)}, {"size": (0, 4)}):
        with pytest.raises(ConfigError, match="allowed:"):
            ViewConfig(**{"size": (8, 8)} | wrong)
