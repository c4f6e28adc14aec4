"""R13: a random config is valid or refused in one sentence; a random set of options trains one step or is refused."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from echoless.config import DataConfig, RunConfig, from_dict, to_dict
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions
from echoless.errors import ConfigError, EcholessError
from echoless.recipes.resolve import resolve
from echoless.recipes.table import RECIPES

ODD = [
    None,
    True,
    -1,
    0,
    1,
    2,
    3,
    7,
    64,
    1e9,
    0.5,
    -0.5,
    float("nan"),
    float("inf"),
    "",
    "auto",
    "linear",
    [],
    [1, 2],
    {},
]


FAMILIES = ("mae-tiny", "uvit-tiny", "sit-tiny")


def mutate(value, draw: random.Random, rate: float):
    """A copy of a config's dict with some values, keys and types replaced."""
    if isinstance(value, dict):
        changed = {key: mutate(item, draw, rate) for key, item in value.items() if draw.random() > rate / 4}
        if draw.random() < rate / 4:
            changed[draw.choice(["widht", "stepz", "", "alpha"])] = draw.choice(ODD)
        return changed
    return draw.choice(ODD) if draw.random() < rate else value


def test_five_thousand_random_configs_are_valid_or_refused():
    draw = random.Random(0)
    starts = [to_dict(RECIPES[name](DataFacts(3, 32, 32, 1000, classes=5))) for name in FAMILIES]
    valid = refused = 0
    for _ in range(5000):
        try:
            config = from_dict(RunConfig, mutate(draw.choice(starts), draw, rate=draw.choice([0.005, 0.02, 0.2])))
        except ConfigError as error:
            assert " is " in str(error) or " has " in str(error)
            assert "\n" not in str(error)
            refused += 1
        else:
            assert from_dict(RunConfig, to_dict(config)) == config
            valid += 1
    print(f"R13 configs=5000 valid={valid} refused={refused} other exceptions=0")
    assert valid > 200 and refused > 200


def random_options(draw: random.Random) -> dict:
    choices = {
        "recipe": ["auto", "mae-tiny", "shapes", "uvit-tiny", "sit-tiny", "nonsense"],
        "alpha_min": [1.0, 0.6, "auto", 0.0, 1.5],
        "variant": ["faded", "scale_both", "learnable", "none", "magnitude_preserving"],
        "schedule": ["linear", "cosine", "constant", "square"],
        "per": ["sublayer", "block"],
        "fade": ["both", "attention", "mlp"],
        "decoder": ["long_skips", "plain"],
        "mask_ratio": [0.5, 0.75, 0.99, 1.0],
        "label_dropout": [0.0, 0.5, 1.5],
        "conditional": [True, False],
        "image_size": [(32,), (32, 16), (31,), (16, 24)],
        "patch_size": [4, 8, 5, 0],
        "batch_size": [2, 5, 0],
        "accumulate": [1, 2, 9],
        "base_lr": [1e-3, 0.0, -1.0],
        "clip": [1.0, None, 0.0],
        "ema": [None, 0.9, 1.0],
        "warmup": [0.0, 0.5, 2.0],
        "crop_scale": [(0.2, 1.0), (1.0, 1.0), (0.9, 0.1)],
        "optimizer": ["adamw", "adam"],
        "precision": ["fp32", "bf16"],
    }
    return {name: draw.choice(values) for name, values in choices.items() if draw.random() < 0.25}


def test_fifty_random_settings_train_one_step_or_are_refused(tmp_path):
    from echoless.verbs.pretrain import pretrain

    draw, trained, refused = random.Random(1), 0, 0
    while trained + refused < 50:
        wanted = {"max_steps": 1, "workers": 0, "batch_size": 2} | random_options(draw)
        if wanted.get("recipe") in (None, "auto", "mae-tiny") and trained > 12:
            wanted["recipe"] = "shapes"  # the smaller model, to be quick
        out = tmp_path / f"run{trained + refused}"
        try:
            assert pretrain("shapes:16", out=out, **wanted)
            trained += 1
        except EcholessError as error:
            assert "\n" not in str(error)
            refused += 1
    print(f"R13 settings=50 trained={trained} refused={refused} other exceptions=0")
    assert trained >= 10 and refused >= 10


def test_options_that_contradict_each_other_are_refused_before_any_work():
    facts, data = DataFacts(3, 32, 32, 100), DataConfig()
    for options, sentence in (
        ({"epochs": 1.0, "max_steps": 5}, "epochs is 1.0; allowed: either epochs or max_steps"),
        ({"recipe": "mae-tinny"}, "recipe is 'mae-tinny'.*did you mean 'mae-tiny'"),
        ({"image_size": (33,), "patch_size": 4}, "image height is 33; allowed: a multiple of the patch size 4"),
        ({"batch_size": 4, "accumulate": 8}, "accumulate is 8; allowed: a whole number from 1 to 4"),
        ({"max_steps": 0}, "steps is 0"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            resolve(PretrainOptions("DATA", out="RUN", **options), facts, data)


def test_the_number_of_images_seen_does_not_depend_on_the_batch_size():
    facts, data = DataFacts(3, 32, 32, 50_000), DataConfig()
    runs = [
        resolve(PretrainOptions("DATA", out="RUN", recipe="cifar10", batch_size=b), facts, data) for b in (64, 128, 512)
    ]
    seen = [run.steps * run.batch_size for run in runs]
    assert max(seen) - min(seen) <= 512
    assert replace(runs[0], batch_size=1, steps=1) == replace(runs[1], batch_size=1, steps=1)
