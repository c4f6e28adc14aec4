"""Proves that the order in which pixels lie shows in no pixel: of a file, of the cache, or resized."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from echoless.data import measure_statistics, open_images
from echoless.data.cache import build_cache, open_cache
from echoless.data.layout import channels_first, from_order, in_order
from echoless.data.resample import Boxes, resample
from echoless.data.resizing import Fit, resample_large, resize_large

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]
SIZES = ((8, 8), (128, 128), (129, 130), (300, 200))


def _noise(channels: int, height: int, width: int, kind: type = np.uint8) -> np.ndarray:
    rng = np.random.default_rng(channels + height)
    return rng.integers(0, np.iinfo(kind).max, (channels, height, width), dtype=kind, endpoint=True)


@pytest.mark.parametrize("kind", [np.uint8, np.uint16])
@pytest.mark.parametrize("channels", [1, 2, 3, 4, 13])
def test_what_is_stored_is_the_same_image_again(channels: int, kind: type) -> None:
    """However it lay before."""
    for height, width in SIZES:
        image = _noise(channels, height, width, kind)
        by_pixel = np.ascontiguousarray(image.transpose(1, 2, 0)).transpose(2, 0, 1)
        values = in_order(image)
        assert values.flags.c_contiguous and values.tobytes() == in_order(by_pixel).tobytes()
        assert np.array_equal(from_order(values.reshape(-1), image.shape), image)


def test_a_large_picture_is_not_copied_and_a_small_one_lies_in_planes() -> None:
    for height, width in SIZES:
        decoded = _noise(height, width, 3)
        image = channels_first(decoded)
        assert np.array_equal(image, np.moveaxis(decoded, 2, 0))
        large = decoded.size > 128 * 128 * 4
        assert np.shares_memory(image, decoded) == large and image.flags.c_contiguous != large


@pytest.mark.parametrize("channels", [3, 4])
def test_both_orders_are_resized_to_the_same_levels(channels: int) -> None:
    """Against torch on contiguous planes: crops, flips, reductions, and the bilinear filter of small images."""
    planes = _noise(channels, 300, 400)
    picture = from_order(in_order(planes).reshape(-1), planes.shape)
    assert not picture.flags.c_contiguous
    rng = np.random.default_rng(0)
    for _ in range(20):
        top, left = rng.integers(0, 150), rng.integers(0, 200)
        height, width = rng.integers(20, 150), rng.integers(20, 200)
        part = np.s_[:, top : top + height, left : left + width]
        whole = torch.from_numpy(np.ascontiguousarray(planes[part]))[None]
        expected = F.interpolate(whole, size=(64, 96), mode="bicubic", antialias=True)[0].numpy()
        assert np.array_equal(resize_large(picture[part], (64, 96)), expected)
        boxes = Boxes(*(np.array([value]) for value in (top, left, height, width, True)))
        assert np.array_equal(resample_large([picture], boxes, (64, 96))[0], expected[:, :, ::-1])
        for size in ((8, 8), (64, 96)):
            assert np.array_equal(resample([picture], boxes, size), resample([planes], boxes, size))
    for fit in (Fit("cover", (150, 150)), Fit("adm", (70, 70)), Fit("stretch", (90, 200)), Fit("short", (150, 150))):
        assert np.array_equal(fit(picture), fit(planes))


def test_files_give_the_pixels_of_pillow_cached_or_not(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """Small and large, grey and colour, in one set; and the same statistics to the last bit."""
    files = {}
    for number, (height, width, format) in enumerate([(40, 50, "JPEG"), (300, 260, "JPEG"), (200, 240, "PNG")] * 2):
        files[f"{number}.jpg"] = encoded(picture(number, height, width, 3 if number < 5 else 1), format)
    (tmp_path / "data").mkdir()
    for name, data in files.items():
        (tmp_path / "data" / name).write_bytes(data)
    cached, decoded = open_images(tmp_path / "data"), open_images(tmp_path / "data", cache="off")
    assert "are cached" in cached.cache_note and "turned off" in decoded.cache_note
    for index, data in enumerate(files.values()):
        expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).transpose(2, 0, 1)
        for images in (cached, decoded):
            assert np.array_equal(images.get([index]).pixels[0], expected)
    assert measure_statistics(cached) == measure_statistics(decoded)


def test_a_cache_of_another_order_is_not_read(own_cache: Path) -> None:
    """Version 2 held planes of all images: read as this version, its pictures would be noise."""
    about = {"channels": 3, "bits": 8, "shape": [3, 200, 200]}
    build_cache(own_cache, lambda: "key", about, [[_noise(3, 200, 200)]])
    assert open_cache(own_cache, "key") is not None
    written = json.loads((own_cache / "key" / "about.json").read_text())
    (own_cache / "key" / "about.json").write_text(json.dumps(written | {"version": 2}))
    assert open_cache(own_cache, "key") is None
