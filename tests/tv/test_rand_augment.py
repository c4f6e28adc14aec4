"""RandAugment is timm's `rand-m9-mstd0.5-inc1`: the same operations, arguments and pixels for the same draws.

Run: make test-tv.
"""

from __future__ import annotations

import random
from statistics import NormalDist

import numpy as np
import pytest
from PIL import Image

from echoless.data.rand_augment import ARGUMENTS, OPERATIONS, rand_augment, read_step

timm_ops = pytest.importorskip("timm.data.auto_augment")

OURS_TO_TIMM = {
    "autocontrast": "AutoContrast",
    "equalize": "Equalize",
    "invert": "Invert",
    "rotate": "Rotate",
    "posterize": "PosterizeIncreasing",
    "solarize": "SolarizeIncreasing",
    "solarize_add": "SolarizeAdd",
    "color": "ColorIncreasing",
    "contrast": "ContrastIncreasing",
    "brightness": "BrightnessIncreasing",
    "sharpness": "SharpnessIncreasing",
    "shear_x": "ShearX",
    "shear_y": "ShearY",
    "translate_x": "TranslateXRel",
    "translate_y": "TranslateYRel",
}
MEAN = (0.485, 0.456, 0.406)
PARAMETERS = {"translate_const": 20, "img_mean": (124, 116, 104), "interpolation": Image.Resampling.BICUBIC}


def picture(mode: str = "RGB") -> Image.Image:
    noise = np.random.default_rng(0).integers(0, 256, (12, 16, 3), dtype=np.uint8)
    return Image.fromarray(noise).resize((48, 36), Image.Resampling.BICUBIC).convert(mode)


def test_the_operations_their_number_and_their_chances_are_timms():
    theirs = timm_ops.rand_augment_transform("rand-m9-mstd0.5-inc1", dict(PARAMETERS))
    assert [op.name for op in theirs.ops] == [OURS_TO_TIMM[name] for name in OPERATIONS] and theirs.num_layers == 2
    for op in theirs.ops:
        assert (op.prob, op.magnitude, op.magnitude_std, op.magnitude_max) == (0.5, 9, 0.5, None)


@pytest.mark.parametrize("level", [0.0, 2.5, 8.3, 9.0, 9.7, 10.0])
@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_at_every_strength_gives_timms_pixels(name, level, monkeypatch):
    for sign, drawn in ((-1.0, 0.9), (1.0, 0.1)):  # timm negates above one half
        monkeypatch.setattr(random, "random", lambda drawn=drawn: drawn)
        op = timm_ops.AugmentOp(OURS_TO_TIMM[name], prob=1.0, magnitude=level, hparams=dict(PARAMETERS))
        ours = OPERATIONS[name](picture(), ARGUMENTS[name](level / 10, sign), (124, 116, 104))
        if (name, level) == ("posterize", 10.0):  # 0 bits, which this Pillow refuses
            assert not np.asarray(ours).any()
            continue
        assert np.array_equal(np.asarray(ours), np.asarray(op(picture()))), (name, level, sign)


NO_SIGN = ("autocontrast", "equalize", "invert", "posterize", "solarize", "solarize_add")


def timms_answer(row, monkeypatch) -> np.ndarray:
    """timm's random numbers are replaced by ours, in the order in which it asks for them."""
    theirs = timm_ops.rand_augment_transform("rand-m9-mstd0.5-inc1", dict(PARAMETERS))
    steps, asked = row.reshape(2, 4), []
    for which, whether, _, direction in steps:
        signed = list(OPERATIONS)[int(which * 15)] not in NO_SIGN
        asked += [whether, *([1 - direction] if whether < 0.5 and signed else [])]
    magnitudes = [NormalDist(9, 0.5).inv_cdf(step[2]) for step in steps if step[1] < 0.5]
    monkeypatch.setattr(np.random, "choice", lambda ops, n, **_: [ops[int(step[0] * 15)] for step in steps])
    monkeypatch.setattr(random, "random", lambda: asked.pop(0))
    monkeypatch.setattr(random, "gauss", lambda mean, std: magnitudes.pop(0))
    return np.asarray(theirs(picture())).transpose(2, 0, 1)


def test_a_whole_augmentation_with_the_same_draws_gives_timms_pixels(monkeypatch):
    uniform = np.random.default_rng(1).random((60, 8))
    pixels = np.asarray(picture()).transpose(2, 0, 1)
    ours = rand_augment(np.stack([pixels] * len(uniform)), uniform, 9.0, MEAN)
    assert 20 < sum(not np.array_equal(each, pixels) for each in ours) < 60
    for row, found in zip(uniform, ours):
        expected = timms_answer(row, monkeypatch)
        assert np.array_equal(found, expected), [read_step(step, 9.0) for step in row.reshape(2, 4)]
