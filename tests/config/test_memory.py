"""What --shard and --checkpoint-activations cannot do is refused by name, before any work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from echoless.config import OptimConfig, RunConfig, RuntimeConfig, ShortcutConfig
from echoless.config.facts import DataFacts
from echoless.config.memory import require_memory_settings
from echoless.errors import ConfigError
from echoless.recipes.supervised import resnet_tiny_supervised
from echoless.verbs.pretrain import pretrain

SHARD = RuntimeConfig(shard=True)
RECOMPUTE = RuntimeConfig(checkpoint_activations=True)


@pytest.mark.parametrize("name", ["soap", "muon"])
def test_optimisers_that_need_whole_matrices_are_refused_under_shard(name):
    config = RunConfig(optim=OptimConfig(name=name))
    with pytest.raises(ConfigError, match=f"optimizer is '{name}'; allowed: adamw with --shard, because {name} needs"):
        require_memory_settings(config, SHARD)
    require_memory_settings(config, RECOMPUTE)
    require_memory_settings(config, RuntimeConfig())


def test_learnable_alphas_are_refused_under_shard():
    config = RunConfig()
    learnable = replace(config.model.encoder, shortcuts=ShortcutConfig(variant="learnable", alpha_min=1.0))
    config = replace(config, model=replace(config.model, encoder=learnable))
    with pytest.raises(ConfigError, match="variant is 'learnable'; allowed: the others with --shard"):
        require_memory_settings(config, SHARD)
    require_memory_settings(config, RECOMPUTE)


def test_batch_norms_are_not_recomputed():
    config = resnet_tiny_supervised(DataFacts(3, 32, 32, 1000, classes=10))
    with pytest.raises(ConfigError, match=r"checkpoint_activations is True, but recipe .* trains a ResNet"):
        require_memory_settings(config, RECOMPUTE)
    require_memory_settings(config, RuntimeConfig(shard=config.optim.name == "adamw"))


def test_the_verb_refuses_before_the_data_is_read(tmp_path):
    out = tmp_path / "run"
    with pytest.raises(ConfigError, match="optimizer is 'soap'; allowed: adamw with --shard"):
        pretrain(tmp_path / "nowhere", out=out, recipe="mae-tiny", optimizer="soap", shard=True)
    with pytest.raises(ConfigError, match="recipe auto fits the run into a time, which --shard cannot measure"):
        pretrain("shapes:16", out=out, shard=True, device="cpu")
    with pytest.raises(ConfigError, match="time is '3h', which --shard cannot measure"):
        pretrain("shapes:16", out=out, recipe="mae-base", time="3h", shard=True, device="cpu")
    assert not out.exists()
