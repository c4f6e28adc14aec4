"""Frozen dataclasses and their validation. No torch: `echoless --help` must be instant."""

from echoless.config.codec import from_dict, to_dict
from echoless.config.model import MAEConfig, ShortcutConfig, ViTConfig
from echoless.config.objective import MaskedConfig
from echoless.config.presets import PRESETS, mae_preset
from echoless.config.training import DataConfig, OptimConfig, RunConfig, RuntimeConfig

__all__ = [
    "PRESETS",
    "DataConfig",
    "MAEConfig",
    "MaskedConfig",
    "OptimConfig",
    "RunConfig",
    "RuntimeConfig",
    "ShortcutConfig",
    "ViTConfig",
    "from_dict",
    "mae_preset",
    "to_dict",
]
