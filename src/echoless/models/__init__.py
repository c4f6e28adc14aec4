"""Architectures: no losses, no files."""

from echoless.models.denoiser import Denoiser
from echoless.models.dino import DINO
from echoless.models.features import POOLINGS, Features, pool
from echoless.models.layers import count_parameters, patchify, sincos_positions, unpatchify
from echoless.models.mae import MAE, Masking, tap_blocks
from echoless.models.moco import MoCo
from echoless.models.outline import outline
from echoless.models.registry import BODIES, DENOISERS, MODELS, body_config, build, fresh
from echoless.models.resnet import ResNet
from echoless.models.silent import without_silent_branches
from echoless.models.sit import SiT
from echoless.models.uvit import UViT
from echoless.models.vit import ViT

__all__ = [
    "BODIES",
    "DENOISERS",
    "DINO",
    "MAE",
    "MODELS",
    "POOLINGS",
    "Denoiser",
    "Features",
    "Masking",
    "MoCo",
    "ResNet",
    "SiT",
    "UViT",
    "ViT",
    "body_config",
    "build",
    "count_parameters",
    "fresh",
    "outline",
    "patchify",
    "pool",
    "sincos_positions",
    "tap_blocks",
    "unpatchify",
    "without_silent_branches",
]
