"""What is the built-in set `shapes`, and how is image i of it drawn?

Ten classes of about equal area that differ in the shape alone: position, size, rotation, the colours and textures of
shape and ground, and the noise are drawn independently of the class. Image i depends on (seed, split, i) and on nothing
else. A shape is the set of points where its distance function is negative, so that masks come with the images.

`shapes`, `shapes:5000` (a count) and `shapes:2000@test` (a stream that shares no image with the others) name it.

Letters: B images, C = 3 channels, S side in pixels; u, v: coordinates in the frame of the shape, which fits [-1, 1].
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from echoless.config.shapes import DEFAULT_COUNT, SPLITS, count_and_split
from echoless.data.images import Fetched
from echoless.data.resample import Array
from echoless.randomness import generator_for

SIZE = 32

# Half the side of the frame of a shape, as a share of half the image.
_LARGEST, _SMALLEST = 0.8, 0.55
_LEAST_CONTRAST = 0.6  # distance between the two colours in the unit cube
_TEXTURE = 0.06  # largest amplitude of the waves on it, in [0, 1]
_SLOPE = 0.45  # largest change of a channel from the middle of the image to its side: a smooth shade, as light makes it
_NOISE = 0.02
_COLOUR_DRAWS = 8
_SURFACE = 5 + 6  # waves, shade
_PARAMETERS = 4 + 3 * (1 + _COLOUR_DRAWS) + 2 * _SURFACE

Frame = Callable[[Array, Array], Array]


def _disc(u: Array, v: Array) -> Array:
    return np.hypot(u, v) - 0.68


def _ring(u: Array, v: Array) -> Array:
    return np.abs(np.hypot(u, v) - 0.68) - 0.17


def _triangle(u: Array, v: Array) -> Array:
    return np.maximum(np.abs(u) * (math.sqrt(3) / 2) + v / 2, -v) - 0.52


def _square(u: Array, v: Array) -> Array:
    return np.maximum(np.abs(u), np.abs(v)) - 0.6


def _star(u: Array, v: Array) -> Array:
    # Five points are ten mirrored edges: fold the plane onto one of them, from the tip (1, 0) to the notch.
    sector = math.pi / 5
    angle = np.abs(np.mod(np.arctan2(v, u) + sector, 2 * sector) - sector)
    radius = np.hypot(u, v)
    notch = 0.46 * np.array([math.cos(sector), math.sin(sector)])
    edge = (notch - [1, 0]) / np.linalg.norm(notch - [1, 0])
    normal = np.array([edge[1], -edge[0]], dtype=np.float32)
    return normal[0] * (radius * np.cos(angle) - 1) + normal[1] * radius * np.sin(angle)


def _cross(u: Array, v: Array) -> Array:
    x, y = np.abs(u), np.abs(v)
    return np.minimum(np.maximum(x - 0.92, y - 0.23), np.maximum(x - 0.23, y - 0.92))


def _crescent(u: Array, v: Array) -> Array:
    return np.maximum(np.hypot(u, v) - 0.92, 0.72 - np.hypot(u - 0.45, v))


def _bow_tie(u: Array, v: Array) -> Array:
    return np.maximum(np.abs(u) - 0.92, (np.abs(v) - 0.85 * np.abs(u)) / math.hypot(1, 0.85))


def _bar(u: Array, v: Array) -> Array:
    return np.maximum(np.abs(u) - 0.98, np.abs(v) - 0.34)


def _cog(u: Array, v: Array) -> Array:
    teeth = np.clip(2.5 * np.cos(6 * np.arctan2(v, u)), -1, 1)
    return np.hypot(u, v) - 0.67 - 0.17 * teeth


_DISTANCES: dict[str, Frame] = {
    "disc": _disc,
    "ring": _ring,
    "triangle": _triangle,
    "square": _square,
    "star": _star,
    "cross": _cross,
    "crescent": _crescent,
    "bow-tie": _bow_tie,
    "bar": _bar,
    "cog": _cog,
}
CLASS_NAMES = tuple(_DISTANCES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Shapes:
    """The set as images by number; draws what is asked for, keeps nothing."""

    count: int = DEFAULT_COUNT
    split: str = "train"
    seed: int = 0
    size: int = SIZE

    def __len__(self) -> int:
        return self.count

    def identity(self) -> Iterator[str]:
        """The name and a few images: another way of drawing is another set."""
        yield repr(self)
        yield hashlib.sha256(self.draw(np.arange(len(CLASS_NAMES)))[0].tobytes()).hexdigest()

    def fetch(self, ids: Array) -> Fetched:
        return self.draw(ids)[0]

    def mask(self, index: int) -> Array:
        return self.draw(np.array([index]))[1][0]

    def labels(self) -> Array:
        """Classes take turns, so that every prefix of the set is balanced."""
        return np.arange(self.count) % len(CLASS_NAMES)

    def draw(self, ids: Array) -> tuple[Array, Array]:
        """images_BCSS, uint8, and masks_BSS, bool."""
        parameters, noise = zip(*(self._random(int(index)) for index in ids))
        uniform_BP = np.stack(parameters)
        distance_BSS = _distances(uniform_BP[:, :4], ids % len(CLASS_NAMES), self.size)
        colours, surfaces = uniform_BP[:, 4 : -2 * _SURFACE], uniform_BP[:, -2 * _SURFACE :]
        ground, figure = _colours(colours)
        back = _surface(ground, surfaces[:, :_SURFACE], self.size)
        front = _surface(figure, surfaces[:, _SURFACE:], self.size)
        # A pixel that the outline cuts belongs to both in proportion: no jagged edge gives the class away.
        cover = np.clip(0.5 - distance_BSS, 0, 1)[:, None]
        images = back + cover * (front - back) + np.float32(_NOISE) * np.stack(noise)
        return np.rint(np.clip(images, 0, 1) * 255).astype(np.uint8), distance_BSS < 0

    def _random(self, index: int) -> tuple[Array, Array]:
        # Streams of different splits lie 2**40 images apart.
        generator = generator_for(self.seed, "synthetic", (SPLITS.index(self.split) << 40) + index)
        uniform = torch.rand(_PARAMETERS, generator=generator)
        return uniform.numpy(), torch.randn(3, self.size, self.size, generator=generator).numpy()


def parse_shapes(name: str) -> Shapes | None:
    """`shapes[:COUNT][@SPLIT]`, or None if the name is not of this set."""
    named = count_and_split(name)
    return None if named is None else Shapes(count=named[0], split=named[1])


def _distances(uniform_B4: Array, labels_B: Array, size: int) -> Array:
    """distance_BSS from the outline in pixels, negative inside."""
    radius = _SMALLEST + (_LARGEST - _SMALLEST) * uniform_B4[:, 0]
    # The frame stays inside the image.
    centre_x = (2 * uniform_B4[:, 1] - 1) * (1 - radius)
    centre_y = (2 * uniform_B4[:, 2] - 1) * (1 - radius)
    turn = 2 * np.float32(np.pi) * uniform_B4[:, 3]
    axis = (np.arange(size, dtype=np.float32) + 0.5) * (2 / size) - 1
    x = ((axis[None, None, :] - centre_x[:, None, None]) / radius[:, None, None]).astype(np.float32)
    y = ((axis[None, :, None] - centre_y[:, None, None]) / radius[:, None, None]).astype(np.float32)
    cos, sin = np.cos(turn)[:, None, None], np.sin(turn)[:, None, None]
    u, v = cos * x + sin * y, cos * y - sin * x
    distance = np.empty(u.shape, dtype=np.float32)
    for label in np.unique(labels_B):
        chosen = labels_B == label
        distance[chosen] = _DISTANCES[CLASS_NAMES[label]](u[chosen], v[chosen])
    return distance * (radius * (size / 2))[:, None, None]


def _colours(uniform: Array) -> tuple[Array, Array]:
    """ground_BC, and figure_BC: of eight draws the first that can be told from the ground, else the last."""
    colours = uniform.reshape(len(uniform), 1 + _COLOUR_DRAWS, 3)
    ground, candidates = colours[:, 0], colours[:, 1:]
    far = np.linalg.norm(candidates - ground[:, None], axis=2) >= _LEAST_CONTRAST
    far[:, -1] = True
    return ground, candidates[np.arange(len(uniform)), far.argmax(axis=1)]


def _surface(colour_BC: Array, uniform: Array, size: int) -> Array:
    """surface_BCSS: a colour with a shade in each channel and waves on all."""
    slope_BC2 = np.float32(_SLOPE) * (2 * uniform[:, 5:].reshape(-1, 3, 2) - 1)
    axis = (np.arange(size, dtype=np.float32) + 0.5) * np.float32(2 / size) - 1
    shade = slope_BC2[:, :, :1, None] * axis + slope_BC2[:, :, 1:, None] * axis[:, None]
    return colour_BC[:, :, None, None] + shade + _waves(uniform[:, :5], size)[:, None]


def _waves(uniform_B5: Array, size: int) -> Array:
    """waves_BSS: waves in one direction (stripes), or their product with waves across (checks)."""
    amplitude, frequency, direction, phase, kind = (uniform_B5[:, i, None, None] for i in range(5))
    axis = np.arange(size, dtype=np.float32) / size
    wave = 2 * np.float32(np.pi) * (2 + 6 * frequency)
    angle = 2 * np.float32(np.pi) * direction
    along = np.cos(angle) * axis[None, None, :] + np.sin(angle) * axis[None, :, None]
    across = np.cos(angle) * axis[None, :, None] - np.sin(angle) * axis[None, None, :]
    shift = 2 * np.float32(np.pi) * phase
    stripes = np.sin(wave * along + shift)
    checks = stripes * np.sin(wave * across + shift)
    return np.float32(_TEXTURE) * amplitude * np.where(kind < 0.5, stripes, checks)
