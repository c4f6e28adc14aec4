"""The experiments on labels are laid out as the papers have them, and every command of theirs is one that settles."""

from __future__ import annotations

import pytest

from echoless.cli.parsing import parse
from echoless.config import DataConfig
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions, SweepOptions
from echoless.errors import ConfigError
from echoless.recipes.resolve import resolve
from echoless.sweeps.commands import option_of
from echoless.sweeps.papers.scale import NARROW_START
from echoless.sweeps.papers.supervised import PUBLISHED_START
from echoless.sweeps.run import plan

FACTS = DataFacts(3, 32, 32, 1000, classes=10)


def laid_out(name: str, scale: str = "tiny"):
    return plan(SweepOptions("shapes:100", out="OUT", paper=name, scale=scale, seeds=1, test="shapes:20@test"))


def settled(words):
    return resolve(parse(PretrainOptions, words[1:], "echoless pretrain"), FACTS, DataConfig())


@pytest.mark.parametrize("scale", ["tiny", "cpu", "paper"])
def test_skipless_is_four_networks_by_two_optimisers_with_the_published_figures(scale):
    experiment = laid_out("skipless", scale)
    configs = {trial.name: settled(trial.commands[0]) for trial in experiment.trials}
    assert len(configs) == 8 and len(experiment.published) == 6
    seen = {(c.model.body.shortcuts.variant, c.model.body.init_scheme, c.optim.name) for c in configs.values()}
    assert len(seen) == 8 and ("none", "skipless", "soap") in seen
    assert len({(c.steps, c.batch_size, c.objective) for c in configs.values()}) == 1, "one recipe"
    rates = {(c.optim.name, c.optim.base_lr) for c in configs.values()}
    assert len(rates) == 2, "the four networks of an optimiser have one learning rate"
    assert {c.model.body.depth for c in configs.values()} == {12}
    starts = {c.model.body.init_constants for c in configs.values() if c.model.body.init_scheme == "skipless"}
    assert starts == {PUBLISHED_START if scale == "paper" else NARROW_START}, "those of a ViT-B, or of a narrow one"
    values = {(f.settings["shortcuts"], f.settings["optimizer"]): f.value for f in experiment.published}
    assert values["none", "adamw"] == 0.614 and values["none-initialised", "soap"] == 0.808


def test_fig7_is_resnets_of_8_to_16_blocks_by_alpha_min():
    experiment = laid_out("fig7")
    bodies = [settled(trial.commands[0]).model.body for trial in experiment.trials]
    assert {(body.blocks, body.shortcuts.alpha_min) for body in bodies} == {
        (blocks, alpha_min) for blocks in (8, 12, 16) for alpha_min in (1.0, 0.7, 0.5)
    }
    for scale in ("tiny", "cpu", "paper"):
        for trial in laid_out("fig7", scale).trials:  # 7b is over training, at every scale
            assert "--snapshots" in trial.commands[1] and int(option_of(trial.commands[0], "snapshots")[0]) >= 4


@pytest.mark.parametrize("name", ["skipless", "fig7"])
def test_an_experiment_on_labels_needs_something_to_be_judged_on(name):
    with pytest.raises(ConfigError, match="test is None; allowed: labelled images that are held out"):
        plan(SweepOptions("shapes:100", out="OUT", paper=name, seeds=1))
