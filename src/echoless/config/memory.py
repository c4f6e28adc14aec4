"""Which runs can be sharded, and which can recompute their activations? The others are refused by name."""

from __future__ import annotations

from typing import Any

from echoless.config.checks import require
from echoless.config.training import RunConfig, RuntimeConfig
from echoless.errors import ConfigError


def require_memory_settings(config: RunConfig, runtime: RuntimeConfig) -> None:
    """Refuse --shard or --checkpoint-activations where the result would be another, or where it cannot be done."""
    if runtime.shard:
        _require_shardable(config)
    body: Any = config.model.body
    if runtime.checkpoint_activations and body.kind == "resnet":
        raise ConfigError(
            f"checkpoint_activations is True, but recipe {config.recipe} trains a ResNet, whose batch norms would "
            "count every image twice; leave it out"
        )


def _require_shardable(config: RunConfig) -> None:
    whole = f"adamw with --shard, because {config.optim.name} needs whole matrices and --shard cuts them into rows"
    require(config.optim.name == "adamw", "optimizer", config.optim.name, whole)
    variant = config.model.body.shortcuts.variant
    single = "the others with --shard, because each alpha of this one is a single number that cannot be cut"
    require(variant != "learnable", "variant", variant, single)
