"""Proves how large images are resized: against Pillow and ADM's published rule, from any cache, in any company.

Run alone: pytest tests/data/test_resizing.py. Against torchvision's own transforms: tests/tv/test_transforms.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from echoless.data import AugmentConfig, Loader, augment, evaluation_batches, open_images, resize_and_crop
from echoless.data.augment import draw, random_boxes
from echoless.data.resample import Boxes
from echoless.data.resizing import BY_SIZE, DIFFUSION, WHOLE, Fit, Framing, resample_large
from echoless.randomness import generator_for

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]
PLAIN = {"mean": [0.0] * 3, "std": [1.0] * 3}
# torch's fixed-point filter against Pillow's: both round to whole levels twice.
FEW_LEVELS, FEW_PIXELS = 2, 0.02


def _noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (3, height, width), dtype=np.uint8)


def _by_pillow(image_CHW: np.ndarray, size: tuple[int, int], how: Image.Resampling) -> np.ndarray:
    """Columns first, as torch has it; Pillow itself takes the cheaper order, and levels are clipped in between."""
    source = Image.fromarray(image_CHW.transpose(1, 2, 0))
    resized = source.resize((size[1], source.height), how).resize(size[::-1], how)
    return np.asarray(resized).transpose(2, 0, 1)


def _assert_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    levels = np.abs(ours.astype(int) - theirs.astype(int))
    print(f"resized: at most {levels.max()} levels apart, {100 * (levels > 0).mean():.2f} % of the values differ")
    assert levels.max() <= FEW_LEVELS and (levels > 0).mean() < FEW_PIXELS


@pytest.mark.parametrize("shape", [(375, 500), (500, 333), (256, 256), (140, 900)])
@pytest.mark.parametrize("size", [224, 384])
def test_evaluation_resizes_the_short_side_and_crops_the_centre(shape: tuple[int, int], size: int) -> None:
    """Resize(256) and CenterCrop(224), or as much more for a larger input, by Pillow's bicubic filter."""
    image = _noise(*shape)
    resized = round(size * 256 / 224)
    short = min(shape)
    target = tuple(resized if side == short else int(resized * side / short) for side in shape)
    expected = _by_pillow(image, target, Image.Resampling.BICUBIC)
    top, left = (round((side - size) / 2) for side in target)
    expected = expected[:, top : top + size, left : left + size]
    ours = resize_and_crop([image], size=(size, size), **PLAIN)[0].numpy() * 255
    _assert_close(np.rint(ours), expected)


def test_random_crops_are_cut_out_and_then_resized() -> None:
    """A crop never sees the pixels around its box; Pillow's crop and resize is the reference."""
    image = _noise(375, 500)
    boxes = random_boxes(draw(6, generator_for(0, "augment", 0)), np.tile([375, 500], (6, 1)), AugmentConfig())
    ours = resample_large([image] * 6, boxes, (224, 224))
    for crop, top, left, height, width, flip in zip(ours, *boxes):
        box = image[:, int(top) : int(top + height), int(left) : int(left + width)]
        expected = _by_pillow(box, (224, 224), Image.Resampling.BICUBIC)
        _assert_close(crop, expected[:, :, ::-1] if flip else expected)


def test_boxes_are_whole_pixels_even_where_no_crop_fits() -> None:
    config = AugmentConfig(scale=(0.9, 1.0), ratio=(3 / 4, 4 / 3))
    boxes = random_boxes(draw(4, generator_for(0, "augment", 0)), np.tile([1001, 301], (4, 1)), config)
    for field in boxes[:4]:
        assert np.array_equal(field, np.rint(field))
    # torchvision: the full width, and 4/3 of it in height, from the middle.
    assert boxes.height_B.tolist() == [401] * 4 and boxes.top_B.tolist() == [300] * 4


def test_the_same_pixels_whatever_the_cache_keeps(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """From the files, from a cache of whole images and from one of reduced images: the same bits, in any batch."""
    for i, shape in enumerate([(300, 400), (400, 300), (290, 290), (60, 80)]):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i, *shape)))
    seen = []
    for cache in ("off", "on"):
        for reduction in (None, BY_SIZE.reduction((224, 224))):
            images = open_images(tmp_path, cache=cache, reduction=reduction)
            for size in (1, 4):
                batches = evaluation_batches(images, size=(224, 224), batch_size=size, workers=0, **PLAIN)
                seen.append(torch.cat([batch.images_BCHW for batch in batches]))
    assert all(torch.equal(seen[0], other) for other in seen[1:])


def test_sets_of_small_images_share_one_cache(
    tmp_path: Path, picture: Picture, encoded: Encoded, own_cache: Path
) -> None:
    """Whatever the size at which larger images would be kept; large ones have a cache for each."""
    for name, side in (("small", 96), ("large", 300)):
        (tmp_path / name).mkdir()
        for i in range(3):
            (tmp_path / name / f"{i}.png").write_bytes(encoded(picture(i, side, side)))

    def caches(name: str) -> int:
        for reduction in (None, Fit("cover", (256, 256)), Fit("adm", (128, 128)), Fit("short", (256, 256), "bilinear")):
            open_images(tmp_path / name, reduction=reduction)
        return len([path for path in own_cache.iterdir() if path.name != "content"])

    assert caches("small") == 1
    assert caches("large") == 1 + 4
    kept = open_images(tmp_path / "large", reduction=Fit("adm", (128, 128)))
    assert kept.reduction == Fit("adm", (128, 128)) and kept.file_shape == (300, 300) and kept.shape == (3, 128, 128)


@pytest.mark.parametrize("shape", [(1100, 700), (600, 520), (300, 257), (200, 180)])
def test_latents_are_of_the_crop_of_adm(shape: tuple[int, int]) -> None:
    """Halved by a box filter while at least twice the target, bicubic to the target, cropped: to the last bit."""
    size, image = 256, _noise(*shape)
    reference = Image.fromarray(image.transpose(1, 2, 0))
    while min(reference.size) >= 2 * size:
        reference = reference.resize((reference.width // 2, reference.height // 2), Image.Resampling.BOX)
    scale = size / min(reference.size)
    reference = reference.resize(
        (round(reference.width * scale), round(reference.height * scale)), Image.Resampling.BICUBIC
    )
    pixels = np.asarray(reference)
    top, left = (pixels.shape[0] - size) // 2, (pixels.shape[1] - size) // 2
    expected = pixels[top : top + size, left : left + size].transpose(2, 0, 1)
    assert np.array_equal(replace(DIFFUSION, every=True).frame(image, (size, size)), expected)


def test_diffusion_trains_on_that_crop_or_its_mirror_image() -> None:
    """Also where the images were reduced to it already, at a size that counts as small."""
    image = _noise(300, 401)
    config = AugmentConfig(scale=None, interpolation="bicubic")
    uniform = draw(8, generator_for(0, "augment", 0))
    whole = augment([image] * 8, uniform, size=(64, 64), config=config, **PLAIN)
    reduced = augment([Fit("adm", (64, 64))(image)] * 8, uniform, size=(64, 64), config=config, **PLAIN)
    assert torch.equal(whole, reduced)
    expected = torch.from_numpy(replace(DIFFUSION, every=True).frame(image, (64, 64)).copy()) / 255
    for seen, flip in zip(whole, uniform[:, -1] < 0.5):
        torch.testing.assert_close(seen, expected.flip(-1) if flip else expected)


def test_sixteen_bits_and_any_number_of_channels() -> None:
    image = np.random.default_rng(0).integers(0, 65536, (5, 200, 300), dtype=np.uint16)
    resized = Fit("cover", (150, 150))(image)
    planes = [
        np.asarray(Image.fromarray(plane.astype(np.float32)).resize((225, 150), Image.Resampling.BICUBIC))
        for plane in image
    ]
    expected = np.clip(np.rint(np.stack(planes)), 0, 65535)
    assert resized.dtype == np.uint16 and np.abs(resized - expected).max() <= 1
    eight = Fit("cover", (150, 150))((image >> 8).astype(np.uint8))
    assert eight.shape == (5, 150, 225) and eight.dtype == np.uint8


def test_each_framing_gives_exactly_the_size() -> None:
    """Also for inputs that are not square, and stretched without a crop."""
    for shape in ((131, 700), (700, 131), (224, 224), (20, 33)):
        for framing in (BY_SIZE, WHOLE, DIFFUSION, Framing(share=1.0, kind="stretch", every=True)):
            assert framing.frame(_noise(*shape), (96, 160)).shape == (3, 96, 160)


def test_an_encoder_of_tiny_images_still_crops_large_ones() -> None:
    """What is kept for it is not so small that it would be used whole."""
    assert BY_SIZE.reduction((32, 32)) == Fit("cover", (256, 256))
    assert BY_SIZE.reduction((224, 224)) == Fit("cover", (256, 256))
    assert BY_SIZE.reduction((512, 512)) == Fit("cover", (585, 585))


def test_a_batch_of_large_images_is_the_same_in_pieces(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """A batch is prepared a few images at a time: each crop is that of `augment` with the draws of its place."""
    for i in range(40):
        (tmp_path / f"{i:02d}.png").write_bytes(encoded(picture(i, 257, 260)))
    images = open_images(tmp_path)
    config = AugmentConfig(interpolation="bicubic")
    batch = Loader(images, size=(64, 64), batch_size=40, seed=3, augment=config, workers=0, **PLAIN).batch(5)
    uniform = draw(40, generator_for(3, "augment", 5))
    pixels = list(images.get(batch.ids_B).pixels)
    assert torch.equal(batch.images_BCHW, augment(pixels, uniform, size=(64, 64), config=config, **PLAIN))


def test_a_box_is_taken_as_it_is() -> None:
    boxes = Boxes(*(np.array([value]) for value in (3, 5, 64, 80, False)))
    image = _noise(200, 200)
    assert np.array_equal(resample_large([image], boxes, (64, 80))[0], image[:, 3:67, 5:85])


def test_sixteen_bit_crops_are_mirrored_and_resized_as_their_levels_are() -> None:
    """The mirror image is numpy's, and every level is within half of one from the same crop in double precision."""
    image = np.random.default_rng(0).integers(0, 65536, (2, 200, 210), dtype=np.uint16)
    fields = [np.full(2, value) for value in (7, 11, 150, 160)]
    plain, mirrored = resample_large([image, image], Boxes(*fields, np.array([False, True])), (64, 64))
    assert np.array_equal(mirrored, plain[:, :, ::-1])
    levels = torch.from_numpy(image[None, :, 7:157, 11:171].astype(np.float64))
    expected = torch.nn.functional.interpolate(levels, size=(64, 64), mode="bicubic", antialias=True)[0].numpy()
    assert np.abs(plain - expected.clip(0, 65535)).max() <= 0.5
