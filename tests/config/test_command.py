"""The command that a run records asks, when it is typed again, for the very same options."""

from __future__ import annotations

import shlex

import pytest
from echoless.cli.finetune import Finetune
from echoless.cli.pretrain import Pretrain

from echoless.cli.parsing import parse
from echoless.config.options import FinetuneOptions, PretrainOptions, as_command

OPTIONS = [
    PretrainOptions(),
    PretrainOptions(recipe="demo", alpha_min=0.6, max_steps=300, seed=3, compile=False, normalize_pixels=True),
    PretrainOptions(image_size=(32, 48), crop_scale=(0.2, 0.9), alpha_min="auto", variant="scale_both", epochs=0.5),
    PretrainOptions(labels='it\'s a "file".csv', init="a folder/é", strict=True, cache="off", clip=1e-3),
]


@pytest.mark.parametrize("options", OPTIONS)
def test_the_recorded_command_asks_for_the_same_run(options):
    command = as_command("pretrain", "my photos/*", options=options, out="runs/<a> 'b'")
    words = shlex.split(command)
    assert words[:2] == ["echoless", "pretrain"]
    read = parse(Pretrain, words[2:], "echoless pretrain")
    assert (read.data, str(read.out), read.run) == ("my photos/*", "runs/<a> 'b'", options)


def test_how_a_run_was_started_is_not_part_of_what_it_is():
    resumed = PretrainOptions(seed=1, resume=True, requeue=True)
    assert as_command("pretrain", "D", options=resumed, out="R") == "echoless pretrain D --out R --seed 1"


def test_fine_tuning_has_its_command_too():
    command = as_command("finetune", "RUN", options=FinetuneOptions(mixup=0.0), train="A", test="B", out="C")
    read = parse(Finetune, shlex.split(command)[2:], "echoless finetune")
    assert (str(read.run), read.train, read.test, str(read.out)) == ("RUN", "A", "B", "C")
    assert FinetuneOptions(mixup=0.0) in vars(read).values()
