"""Defaults that are published settings are the published ones, and the others what the documentation says.

Run alone: pytest tests/config/test_published.py
"""

from __future__ import annotations

from dataclasses import MISSING, fields

import pytest

from echoless.config import DiffusionConfig, FlowConfig, OptimConfig, SiTConfig, UViTConfig, ViTConfig
from echoless.config.masked import MaskedConfig
from echoless.config.options import SweepOptions
from echoless.config.resnet import ResNetConfig
from echoless.config.selfsupervised import DINOConfig, DistillationConfig, InfoNCEConfig, MoCoConfig
from echoless.config.supervised import SupervisedConfig
from echoless.config.training import RuntimeConfig
from echoless.config.views import ViewConfig
from echoless.errors import ConfigError

PUBLISHED = {
    # Table 8 of arXiv:2111.06377 (MAE): AdamW, 1.5e-4 for every 256 images, betas, decay; three quarters are masked.
    OptimConfig: {"name": "adamw", "base_lr": 1.5e-4, "betas": (0.9, 0.95), "weight_decay": 0.05, "decay": "cosine"},
    MaskedConfig: {"mask_ratio": 0.75, "normalize_pixels": True},
    # arXiv:2010.11929 and every transformer below: the MLP is four times as wide.
    ViTConfig: {"mlp_ratio": 4.0, "channels": 3},
    # U-ViT (arXiv:2209.12152) and SiT-XL/2 (arXiv:2401.08740); a tenth of the labels is dropped (arXiv:2207.12598).
    UViTConfig: {"mlp_ratio": 4.0, "patch_size": 2, "width": 512, "depth": 12, "heads": 8, "norm_eps": 1e-5},
    SiTConfig: {"mlp_ratio": 4.0, "patch_size": 2, "width": 1152, "depth": 28, "heads": 16, "norm_eps": 1e-6},
    DiffusionConfig: {"label_dropout": 0.1, "schedule": "vp", "first_step": 1},
    FlowConfig: {"label_dropout": 0.1, "interpolant": "linear", "prediction": "velocity"},
    # MoCo v3 (arXiv:2104.02057).
    MoCoConfig: {"hidden": 4096, "output": 256},
    InfoNCEConfig: {"temperature": 0.2, "momentum": 0.99},
    # DINO (arXiv:2104.14294).
    DINOConfig: {"hidden": 2048, "bottleneck": 256, "prototypes": 65_536},
    DistillationConfig: {
        "student_temperature": 0.1,
        "teacher_temperature": (0.04, 0.04),
        "centre_momentum": 0.9,
        "momentum": 0.996,
        "local_views": 8,
        "local_scale": (0.05, 0.4),
        "local_side": 0.43,
    },
    # BYOL's colours as MoCo v3 uses them.
    ViewConfig: {
        "flip": 0.5,
        "jitter": 0.8,
        "brightness": 0.4,
        "contrast": 0.4,
        "saturation": 0.2,
        "hue": 0.1,
        "grey": 0.2,
        "blur": 0.5,
        "blur_sigma": (0.1, 2.0),
        "solarise": 0.0,
    },
    # Table 9 of arXiv:2111.06377 (fine-tuning).
    SupervisedConfig: {"label_smoothing": 0.1, "mixup": 0.8, "cutmix": 1.0, "erase": 0.25, "drop_path": 0.1},
    ResNetConfig: {"width": 64, "third_stage": 2, "stem": "imagenet", "image_size": (224, 224)},
}
DOCUMENTED = {
    RuntimeConfig: {"workers": 2, "device": "auto", "keep": 2, "strict": False, "track": ()},
    SweepOptions: {"jobs": None},
}


@pytest.mark.parametrize("kind", [*PUBLISHED, *DOCUMENTED], ids=lambda kind: kind.__name__)
def test_defaults_are_the_published_or_documented_ones(kind):
    defaults = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    expected = (PUBLISHED | DOCUMENTED)[kind]
    assert {name: defaults[name] for name in expected} == expected


def test_only_networks_that_predict_noise_denoise():
    assert UViTConfig.denoises and SiTConfig.denoises and not ViTConfig.denoises and not ResNetConfig.denoises


@pytest.mark.parametrize("name", ["label_smoothing", "drop_path"])
def test_a_share_of_everything_is_refused(name):
    """Labels that are smoothed away, or branches that are always dropped, leave nothing to learn."""
    SupervisedConfig(**{name: 0.999})
    with pytest.raises(ConfigError, match=f"{name} is 1"):
        SupervisedConfig(**{name: 1.0})
