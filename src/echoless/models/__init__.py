"""Architectures: no losses, no files."""

from echoless.models.contrastive import MoCo
from echoless.models.denoiser import Denoiser
from echoless.models.dino import DINO
from echoless.models.features import POOLINGS, Features
from echoless.models.layers import count_parameters, patchify, sincos_positions, unpatchify
from echoless.models.mae import MAE, Masking, tap_blocks
from echoless.models.resnet import ResNet
from echoless.models.sit import SiT
from echoless.models.uvit import UViT
from echoless.models.vit import ViT

__all__ = [
    "DINO",
    "MAE",
    "POOLINGS",
    "Denoiser",
    "Features",
    "Masking",
    "MoCo",
    "ResNet",
    "SiT",
    "UViT",
    "ViT",
    "count_parameters",
    "patchify",
    "sincos_positions",
    "tap_blocks",
    "unpatchify",
]
