"""How does an image that a caller holds become pixels (uint8 or uint16, CHW)? A picture of Pillow, a path, an array."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from echoless.config.options.fields import at_home
from echoless.data.arrays import pixels_of_array
from echoless.data.decode import DecodeSettings, Undecodable, decode, pixels_of, to_channels
from echoless.data.resample import Array
from echoless.errors import DataError

Given = Image.Image | str | os.PathLike[str] | np.ndarray | Tensor


def pixels_of_given(image: Given, settings: DecodeSettings) -> Array:
    """As if it were in a set: a file in a folder, an array in an .npz file, which is never reduced."""
    try:
        if isinstance(image, Image.Image):
            return pixels_of(image, settings)
        if isinstance(image, str | os.PathLike):
            return decode(Path(at_home(os.fspath(image))).read_bytes(), settings)
        if isinstance(image, Tensor):
            tensor = image.detach().cpu()
            image = (tensor.float() if tensor.dtype == torch.bfloat16 else tensor).numpy()
        if isinstance(image, np.ndarray):
            return to_channels(pixels_of_array(image), settings.channels)
    except OSError as error:
        raise DataError(f"{image} cannot be read: {error.strerror or error}") from None
    except Undecodable as error:
        raise DataError(f"the image cannot be used: {error}") from None
    raise DataError(
        f"image is of the type {type(image).__name__}; it must be a picture of Pillow, the path of an image file, or "
        "an array or tensor of the shape (H, W) or (H, W, C)"
    )
