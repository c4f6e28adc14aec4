"""Proves that large images reach a model as torchvision's transforms make them. Run: make test-tv

Tensors: the same grey levels, to the last bit. PIL images, which have another filter: at most two levels apart.
"""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image

torchvision = pytest.importorskip("torchvision", exc_type=ImportError)
from torchvision.transforms import v2  # noqa: E402
from torchvision.transforms.v2 import functional as transforms  # noqa: E402

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
