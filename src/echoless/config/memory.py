"""Does a run fit in memory? Which can be sharded, which can recompute their activations, which batch is too large."""

from __future__ import annotations

from typing import Any

from echoless.config.checks import require
from echoless.config.masked import MaskedConfig
from echoless.config.training import RunConfig, RuntimeConfig
from echoless.errors import ConfigError, NoMemory


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


def least_step_bytes(config: RunConfig, recompute: bool = False) -> int:
    """Memory that a training step needs for every image, at the least: its pixels, and what the backward pass keeps.

    Real steps were measured to need between 1.03 and 1.6 times as much with transformers. Compiled ones keep less.
    """
    body: Any = config.model.body
    height, width = body.image_size
    shown = 1 - config.objective.mask_ratio if isinstance(config.objective, MaskedConfig) else 1
    values = int(shown * body.kept_values) + getattr(config.model, "decoder_kept_values", 0)
    if recompute:  # of a block of a transformer, one value of sixteen
        values //= 16
    if config.compile:
        values //= 2
    return 4 * body.channels * height * width + (2 if config.precision == "bf16" else 4) * values


def require_batch_fits(config: RunConfig, total: int | None, where: str, *, processes: int, recompute: bool) -> None:
    """Refuse a batch of which one piece alone needs more than all memory; a tighter one is the user's to try."""
    if total is None:
        return
    each, pieces = least_step_bytes(config, recompute), processes * config.accumulate
    needed = each * -(-config.batch_size // pieces)
    if needed <= total:
        return
    most = pieces * (total // each)
    less = "" if config.accumulate * processes >= config.batch_size else ", or a larger --accumulate"
    allowed = f"at most {most:,}{less}" if most else "images or models that are smaller"
    raise NoMemory(
        f"batch_size is {config.batch_size}, of which a step needs at least {needed / 1e9:,.1f} GB, but {where} has "
        f"{total / 1e9:,.1f} GB; allowed: {allowed}"
    )
