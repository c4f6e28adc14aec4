"""Proves that large images reach a model as torchvision's transforms make them. Run: make test-tv

Tensors: the same grey levels, to the last bit. PIL images, which have another filter: at most two levels apart.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image

torchvision = pytest.importorskip("torchvision", exc_type=ImportError)
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as transforms  # noqa: E402

from echoless.data import views  # noqa: E402
from echoless.data.augment import AugmentConfig, augment, draw, random_boxes, resize_and_crop  # noqa: E402
from echoless.data.decode import DecodeSettings, decode  # noqa: E402
from echoless.data.resizing import BY_SIZE  # noqa: E402
from echoless.randomness import generator_for  # noqa: E402

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
BICUBIC = v2.InterpolationMode.BICUBIC
CLOSE = {"rtol": 0, "atol": 1e-6}  # of normalised values: two roundings of float32


def photo(height: int, width: int, seed: int = 0) -> Image.Image:
    """Smooth, with edges and a little noise, as photographs are."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8)).resize((width, height), Image.BICUBIC)
    noisy = np.asarray(coarse).astype(int) + rng.integers(-12, 13, (height, width, 3))
    noisy[height // 3 : height // 2, width // 4 : width // 2] = 250
    return Image.fromarray(noisy.clip(0, 255).astype(np.uint8))


def as_jpeg(image: Image.Image) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=90)
    return file.getvalue()


def normalised(levels_CHW: torch.Tensor) -> torch.Tensor:
    return transforms.normalize(levels_CHW.float() / 255, MEAN, STD)


@pytest.mark.parametrize("size", [224, 384, 512])
@pytest.mark.parametrize("shape", [(375, 500), (500, 375), (600, 601), (1200, 1600)])
def test_evaluation_is_resize_and_centre_crop(shape: tuple[int, int], size: int) -> None:
    """From the bytes of a JPEG to the model's input."""
    data = as_jpeg(photo(*shape))
    image = Image.open(io.BytesIO(data)).convert("RGB")
    resize = round(size * 256 / 224)
    theirs = v2.Compose([v2.Resize(resize, interpolation=BICUBIC, antialias=True), v2.CenterCrop(size)])
    pixels = decode(data, DecodeSettings(reduction=BY_SIZE.reduction((size, size))))
    ours = resize_and_crop([pixels], size=(size, size), mean=MEAN, std=STD)[0]
    torch.testing.assert_close(ours, normalised(theirs(transforms.pil_to_tensor(image))), **CLOSE)
    by_pillow = normalised(transforms.pil_to_tensor(theirs(image)))
    levels = ((ours - by_pillow) * torch.tensor(STD)[:, None, None] * 255).abs()
    print(f"{shape} at {size}: at most {levels.max():.2f} levels from PIL, {100 * (levels > 0.5).float().mean():.2f} %")
    assert levels.max() < 2.1 and (levels > 0.5).float().mean() < 0.03


@pytest.mark.parametrize("shape", [(375, 500), (500, 333), (256, 1100)])
def test_random_crops_are_those_of_random_resized_crop(shape: tuple[int, int]) -> None:
    """On the same boxes; those of an image too wide for any crop are torchvision's too."""
    image = transforms.pil_to_tensor(photo(*shape))
    config = AugmentConfig(scale=(0.2, 1.0), interpolation="bicubic")
    uniform = draw(8, generator_for(0, "augment", 0))
    ours = augment([image.numpy()] * 8, uniform, size=(224, 224), config=config, mean=MEAN, std=STD)
    boxes = random_boxes(uniform, np.tile(shape, (8, 1)), config)
    for crop, top, left, height, width, flip in zip(ours, *boxes):
        corner = [int(value) for value in (top, left, height, width)]
        theirs = transforms.resized_crop(image, *corner, size=[224, 224], interpolation=BICUBIC, antialias=True)
        theirs = transforms.horizontal_flip(theirs) if flip else theirs
        torch.testing.assert_close(crop, normalised(theirs), **CLOSE)


def test_boxes_where_no_crop_fits_are_those_of_torchvision() -> None:
    image = torch.zeros(3, 200, 1500, dtype=torch.uint8)
    theirs = v2.RandomResizedCrop(224, scale=(0.99, 1.0)).make_params([image])
    config = AugmentConfig(scale=(0.99, 1.0))
    boxes = random_boxes(draw(1, generator_for(0, "augment", 0)), np.array([[200, 1500]]), config)
    ours = [int(field[0]) for field in boxes[:4]]
    assert ours == [theirs["top"], theirs["left"], theirs["height"], theirs["width"]]


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.4])
@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (views.brightness, transforms.adjust_brightness),
        (views.contrast, transforms.adjust_contrast),
        (views.saturation, transforms.adjust_saturation),
    ],
)
def test_colours_change_as_in_color_jitter(ours: Callable, theirs: Callable, factor: float) -> None:
    """On levels from 0 to 1. torchvision's weights of grey have four digits, which explains the tolerance."""
    image = transforms.pil_to_tensor(photo(96, 128)) / 255
    changed = ours(image.numpy()[None], np.array([factor], dtype=np.float32))[0]
    torch.testing.assert_close(torch.from_numpy(changed), theirs(image, factor), rtol=0, atol=2e-4)


@pytest.mark.parametrize("turn", [-0.1, 0.03, 0.1])
def test_the_hue_turns_as_in_color_jitter(turn: float) -> None:
    image = transforms.pil_to_tensor(photo(96, 128)) / 255
    changed = views.turn_hue(image.numpy()[None], np.array([turn]))[0]
    torch.testing.assert_close(torch.from_numpy(changed), transforms.adjust_hue(image, turn), rtol=0, atol=1e-5)


def test_solarising_is_torchvisions() -> None:
    image = transforms.pil_to_tensor(photo(96, 128)) / 255
    changed = torch.from_numpy(views.solarise(image.numpy()))
    torch.testing.assert_close(changed, transforms.solarize(image, 0.5), **CLOSE)


@pytest.mark.parametrize("sigma", [0.1, 0.7, 2.0])
def test_blurring_is_torchvisions_inside_of_the_border(sigma: float) -> None:
    """At the border ours repeats the outermost pixels, as Pillow's filter in DINO and MoCo v3; torchvision mirrors."""
    image = transforms.pil_to_tensor(photo(96, 128)) / 255
    ours = torch.from_numpy(views.blur(image.numpy()[None], np.array([sigma]), largest=2.0)[0])
    theirs = transforms.gaussian_blur(image, kernel_size=[13, 13], sigma=[sigma, sigma])
    inside = (..., slice(6, -6), slice(6, -6))
    torch.testing.assert_close(ours[inside], theirs[inside], rtol=0, atol=1e-5)
