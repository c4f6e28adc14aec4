"""Which architectures are there? One row each: the kind, as configs and files name it, its config and its model.

A *body* is what `RUN/encoder` holds and what is evaluated; a *whole model* is what is trained: a body, or a body with
decoder, projector or head.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from echoless.config import (
    DINOConfig,
    MAEConfig,
    MoCoConfig,
    ResNetConfig,
    SiTConfig,
    UViTConfig,
    ViTConfig,
    from_dict,
)
from echoless.config.checks import require_one_of
from echoless.config.supervised import ClassifierConfig
from echoless.models.classifier import Classifier
from echoless.models.dino import DINO
from echoless.models.mae import MAE
from echoless.models.moco import MoCo
from echoless.models.resnet import ResNet
from echoless.models.sit import SiT
from echoless.models.uvit import UViT
from echoless.models.vit import ViT
from echoless.shortcuts import init_skipless_


class Architecture(NamedTuple):
    config: Any  # the class of its config
    model: Any  # the class of the network: model(config, generator)


BODIES: dict[str, Architecture] = {
    "vit": Architecture(ViTConfig, ViT),
    "resnet": Architecture(ResNetConfig, ResNet),
    "uvit": Architecture(UViTConfig, UViT),
    "sit": Architecture(SiTConfig, SiT),
}
MODELS: dict[str, Architecture] = {
    "mae": Architecture(MAEConfig, MAE),
    "classifier": Architecture(ClassifierConfig, Classifier),
    "moco": Architecture(MoCoConfig, MoCo),
    "dino": Architecture(DINOConfig, DINO),
    "uvit": BODIES["uvit"],
    "sit": BODIES["sit"],
}
DENOISERS = tuple(kind for kind, architecture in BODIES.items() if architecture.config.denoises)


def build(config: Any, generator: torch.Generator | None = None) -> Any:
    """The network of a config, of either table, to load weights into."""
    return (BODIES | MODELS)[config.kind].model(config, generator)


def fresh(config: Any, generator: torch.Generator) -> Any:
    """A network initialised for training; the only place that applies the skipless initialisation.

    Only `init_scheme` selects it, in every model with a ViT; no shortcut variant implies it, because comparisons need
    both initialisations. It needs a decomposition per block, so `build` skips it for networks read from a file.
    """
    model = build(config, generator)
    body = config.body
    if getattr(body, "init_scheme", "default") == "skipless":
        init_skipless_(model.body, *body.init_constants, generator=generator)
        model.share_encoder()
    return model


def body_config(kind: object, described: Any) -> Any:
    """The config of a body of this kind, from what `to_dict` made of it."""
    require_one_of("kind", kind, tuple(BODIES))
    return from_dict(BODIES[str(kind)].config, described, "model")
