"""The command that a run records asks, when it is typed again, for the very same options."""

from __future__ import annotations

import shlex

import pytest

from echoless.cli.parsing import parse
from echoless.config.options import FinetuneOptions, PretrainOptions, as_command


def pretrain(**given) -> PretrainOptions:
    return PretrainOptions("my photos/*", out="runs/<a> 'b'", **given)


OPTIONS = [
    pretrain(),
    pretrain(recipe="demo", alpha_min=0.6, max_steps=300, seed=3, compile=False, normalize_pixels=True),
    pretrain(image_size=(32, 48), crop_scale=(0.2, 0.9), alpha_min="auto", variant="scale_both", epochs=0.5),
    pretrain(labels='it\'s a "file".csv', init="a folder/é", strict=True, cache="off", clip=1e-3),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_recorded_command_asks_for_the_same_run(options):
    words = shlex.split(as_command("pretrain", options))
    assert words[:2] == ["echoless", "pretrain"]
    assert parse(PretrainOptions, words[2:], "echoless pretrain") == options


def test_how_a_run_was_started_is_not_part_of_what_it_is():
    resumed = PretrainOptions("D", out="R", seed=1, resume=True, requeue=True)
    assert as_command("pretrain", resumed) == "echoless pretrain D --out R --seed 1"


def test_fine_tuning_has_its_command_too():
    options = FinetuneOptions("RUN", train="A", test="B", out="C", mixup=0.0)
    assert parse(FinetuneOptions, shlex.split(as_command("finetune", options))[2:], "echoless finetune") == options


def test_a_value_that_equals_the_default_is_part_of_the_command():
    options = FinetuneOptions("RUN", train="A", test="B", out="C", mixup=0.8, seed=0)
    assert as_command("finetune", options).endswith("--seed 0 --mixup 0.8")
