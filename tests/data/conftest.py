"""Fixtures of the data tests: a cache of their own, and makers of images and of sets of them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

REPOSITORY = Path(__file__).parents[2]
SHARED = REPOSITORY.parent / "shared" / "data"


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's cache."""
    root = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("ECHOLESS_CACHE", str(root))
    return root


@pytest.fixture
def picture() -> Callable[..., np.ndarray]:
    """A smooth HWC picture that differs from number to number, so that order and content can be recognised."""

    def make(number: int, height: int = 40, width: int = 48, channels: int = 3, dtype: type = np.uint8) -> np.ndarray:
        coarse = np.random.default_rng(number).random((channels, 5, 5)).astype(np.float32)
        smooth = [Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR) for plane in coarse]
        return (np.stack([np.asarray(plane) for plane in smooth], -1) * np.iinfo(dtype).max).astype(dtype)

    return make


@pytest.fixture
def encoded() -> Callable[..., bytes]:
    """The bytes of an HWC or HW array in a format of Pillow."""

    def encode(array: np.ndarray, format: str = "PNG", **options: object) -> bytes:
        file = io.BytesIO()
        image = Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
        image.save(file, format, **options)
        return file.getvalue()

    return encode


@pytest.fixture
def cifar_parquet() -> Path:
    """The first hundred images of a real data set in the Hugging Face layout."""
    path = SHARED / "cifar10" / "test.parquet"
    if not path.exists():
        pytest.skip(f"SKIPPED LOUDLY: no real data at {path}")
    return path
