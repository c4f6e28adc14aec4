"""Frozen dataclasses and their validation. No torch: `echoless --help` must be instant."""

from echoless.config.body import Body, with_body
from echoless.config.codec import from_dict, to_dict
from echoless.config.diffusion import (
    SIT_SIZES,
    UVIT_SIZES,
    DiffusionConfig,
    FlowConfig,
    SiTConfig,
    UViTConfig,
    sit_preset,
    uvit_preset,
)
from echoless.config.masked import MaskedConfig
from echoless.config.model import MAEConfig, ShortcutConfig, ViTConfig
from echoless.config.presets import PRESETS, mae_preset
from echoless.config.resnet import ResNetConfig
from echoless.config.selfsupervised import DINOConfig, DistillationConfig, InfoNCEConfig, MoCoConfig
from echoless.config.training import (
    DataConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimConfig,
    RunConfig,
    RuntimeConfig,
)
from echoless.config.views import ViewConfig

__all__ = [
    "PRESETS",
    "SIT_SIZES",
    "UVIT_SIZES",
    "Body",
    "DINOConfig",
    "DataConfig",
    "DiffusionConfig",
    "DistillationConfig",
    "FlowConfig",
    "InfoNCEConfig",
    "MAEConfig",
    "MaskedConfig",
    "MoCoConfig",
    "ModelConfig",
    "ObjectiveConfig",
    "OptimConfig",
    "ResNetConfig",
    "RunConfig",
    "RuntimeConfig",
    "ShortcutConfig",
    "SiTConfig",
    "UViTConfig",
    "ViTConfig",
    "ViewConfig",
    "from_dict",
    "mae_preset",
    "sit_preset",
    "to_dict",
    "uvit_preset",
    "with_body",
]
