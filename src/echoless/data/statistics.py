"""What are the mean and spread of each channel? Measured once, stored with the run."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import torch

from echoless.data.images import Images
from echoless.randomness import generator_for

SAMPLES = 5000
_ENOUGH = 128  # pixels of the shorter side: of a larger image, every second, third, ... row and column is read
_CHUNK, _DECODED_AT_ONCE = 64, 2**25  # images, or values of large ones


class Statistics(NamedTuple):
    """Per-channel mean and standard deviation of pixels scaled to [0, 1], and from how many images."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: int


def measure_statistics(images: Images, samples: int = SAMPLES) -> Statistics:
    """From up to `samples` images chosen by a fixed draw. Each image counts the same, whatever its size."""
    order = torch.randperm(len(images), generator=generator_for(0, "probe", 0)).tolist()
    ids = sorted([index for index in order if index not in images.excluded][:samples])
    first, second, count = np.zeros(images.shape.channels), np.zeros(images.shape.channels), 0
    brightest = 2**images.bits - 1
    chunk = max(1, min(_CHUNK, _DECODED_AT_ONCE // math.prod(images.shape)))
    for start in range(0, len(ids), chunk):
        for image in images.get(ids[start : start + chunk]).pixels:
            apart = -(-min(image.shape[1:]) // _ENOUGH)
            levels = np.ascontiguousarray(image[:, ::apart, ::apart]).reshape(len(image), -1) / brightest
            first += levels.mean(axis=1)
            second += np.square(levels).mean(axis=1)
            count += 1
    mean = first / max(count, 1)
    std = np.sqrt(np.maximum(second / max(count, 1) - mean**2, 0))
    # A channel that never changes (an alpha of ones) becomes zero instead of dividing by it.
    std[std < 1e-6] = 1
    return Statistics(tuple(mean.tolist()), tuple(std.tolist()), count)
