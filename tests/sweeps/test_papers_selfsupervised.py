"""`sweep --paper infonce` and `--paper dino`: rows differ in their shortcuts alone, and the verbs accept every command.

Run alone: pytest tests/sweeps/test_papers_selfsupervised.py.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from echoless.cli.parsing import parse
from echoless.config import DataConfig
from echoless.config.facts import DataFacts
from echoless.config.options import EvaluateOptions, PretrainOptions, SweepOptions
from echoless.recipes.resolve import resolve
from echoless.sweeps.papers import paper


@pytest.mark.parametrize("scale", ["tiny", "cpu", "paper"])
@pytest.mark.parametrize("name", ["infonce", "dino"])
def test_rows_differ_in_their_shortcuts_alone_and_every_command_is_accepted(name, scale, tmp_path):
    plan = paper(
        name, "shapes:5000", SweepOptions("DATA", out="OUT", paper=name, scale=scale, seeds=2, test="shapes:100@test")
    )
    assert len(plan.trials) == 2 * (2 if name == "infonce" else 3)
    configs = []
    for trial in plan.trials:
        train, measure = trial.commands_in(tmp_path)
        run = parse(PretrainOptions, train[1:], "echoless pretrain")
        options = parse(EvaluateOptions, measure[1:], "echoless evaluate")
        assert run.resume and run.seed == trial.settings["seed"] and options.pooling == "cls"
        configs.append(resolve(run, DataFacts(3, 32, 32, 5000), DataConfig()))
    first = configs[0]
    for config in configs:
        assert config.steps == first.steps and config.optim == first.optim
        alone = config.model.body.shortcuts.variant == "none"  # nothing would be left where a branch is dropped
        same = replace(config.objective, drop_path=first.objective.drop_path) if alone else config.objective
        assert same == first.objective and not (alone and config.objective.drop_path)
    assert len({config.model.body.shortcuts for config in configs}) == len(plan.trials) // 2


def test_dense_columns_are_there_for_images_with_masks_alone():
    for data, maps, there in (("shapes", None, True), ("photos", None, False), ("photos", "MAPS", True)):
        plan = paper("dino", data, SweepOptions("DATA", out="OUT", paper="dino", seeds=1, masks=maps))
        assert ("segprobe-miou" in {quantity.metric for quantity in plan.quantities}) == there
        assert any("segprobe" in words for words in plan.trials[0].commands[1]) == there
