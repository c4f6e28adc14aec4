"""The table of objectives: every pair that a config can name is built, every other one is refused in one sentence.

Run alone: pytest tests/training/test_task.py
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import tiny_config, tiny_family, tiny_images

from echoless.config import FlowConfig, ShortcutConfig
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.errors import ConfigError
from echoless.models import MODELS
from echoless.randomness import generator_for
from echoless.training.task import OBJECTIVES, build_task


def test_every_model_that_can_be_trained_has_an_objective():
    assert {model for model, _ in OBJECTIVES} == set(MODELS)


@pytest.mark.parametrize("name", ["masked", "infonce", "dino", "uvit", "sit"])
def test_a_config_gives_its_model_and_its_objective(name):
    config = tiny_family(tiny_images(), name)
    model, objective = build_task(config, generator_for(0, "init", 0))
    assert type(model) is MODELS[config.model.kind].model and objective.config is config.objective


def test_a_pair_that_does_not_belong_together_is_refused():
    config = replace(tiny_config(tiny_images()), objective=FlowConfig())
    with pytest.raises(ConfigError, match="model and objective are mae with flow; allowed: mae with masked, "):
        build_task(config, generator_for(0, "init", 0))


def test_drop_path_without_shortcuts_is_refused_in_every_supervised_run():
    """Pretraining and fine-tuning alike: a dropped branch would be the end of the stream."""
    base = tiny_config(tiny_images())
    encoder = replace(base.model.encoder, shortcuts=ShortcutConfig(variant="none", alpha_min=1.0))
    config = replace(base, model=ClassifierConfig(encoder=encoder, classes=3), objective=SupervisedConfig())
    with pytest.raises(ConfigError, match=r"drop_path is 0.1; allowed: 0 with variant none"):
        build_task(config, generator_for(0, "init", 0))
    build_task(replace(config, objective=SupervisedConfig(drop_path=0.0)), generator_for(0, "init", 0))
