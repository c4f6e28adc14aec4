"""How does another library's model become an encoder? transformers folders and timm names; both optional."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echoless.errors import ConfigError, RunError
from echoless.evaluation.encoder import Encoder, Layers, Tokens
from echoless.runs.open import fingerprint_of

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def from_transformers(folder: Path, device: str = "cpu") -> Encoder:
    """Any vision model that `AutoModel` loads from this folder and that returns hidden states (B, T, D)."""
    try:
        from transformers import AutoConfig, AutoModel
    except Exception as error:  # a broken install counts as none
        raise ConfigError(f"{folder} is a transformers folder, which needs the extra echoless[hf]: {error}") from None
    config = AutoConfig.from_pretrained(folder, local_files_only=True)
    if hasattr(config, "vision_config"):
        raise RunError(f"{folder} holds an image-text model; save its vision part on its own, and give that folder")
    if hasattr(config, "mask_ratio"):
        config.mask_ratio = 0.0  # a masked autoencoder would mask here too
    model = AutoModel.from_pretrained(folder, config=config, local_files_only=True, use_safetensors=True)
    model = model.to(device).eval()
    size = _pair(getattr(config, "image_size", 224))
    channels = int(getattr(config, "num_channels", 3))
    mean, std = _normalisation(folder, channels)
    layers = tuple(f"hidden{index:02d}" for index in range(int(config.num_hidden_layers) + 1))

    @torch.no_grad()
    def tokens(images_BCHW: Tensor, wanted: Layers) -> Tokens:
        extra: dict[str, Any] = {}
        if hasattr(config, "mask_ratio"):  # keep the patches in their order
            count = (size[0] // config.patch_size) * (size[1] // config.patch_size)
            extra["noise"] = torch.arange(count, dtype=torch.float32).expand(len(images_BCHW), -1).to(device)
        output = model(images_BCHW.to(device), output_hidden_states=True, **extra)
        return {name: output.hidden_states[layers.index(name)] for name in (layers if wanted is None else wanted)}

    return Encoder(
        name=str(folder),
        fingerprint=fingerprint_of(model.state_dict(), [config.to_json_string(), repr((mean, std))]),
        image_size=size,
        channels=channels,
        mean=mean,
        std=std,
        layers=layers,
        tokens=tokens,
        grid=_grid(config, size),
    )


def from_timm(source: str, device: str = "cpu") -> Encoder:
    """`timm:vit_tiny_patch16_224` or `local-dir:DIR`, with the weights that timm finds for it."""
    try:
        import timm
    except Exception as error:
        raise ConfigError(f"{source} needs the extra echoless[timm]: {error}") from None
    name = source.removeprefix("timm:")
    try:
        model = timm.create_model(name, pretrained=True).to(device).eval()
    except Exception as error:
        raise RunError(f"timm could not open {name!r}: {error}") from None
    settings = model.pretrained_cfg
    channels, *size = settings["input_size"]

    @torch.no_grad()
    def tokens(images_BCHW: Tensor, wanted: Layers) -> Tokens:
        output = model.forward_features(images_BCHW.to(device))
        return {"features": output if output.ndim == 3 else output.flatten(2).transpose(1, 2)}

    return Encoder(
        name=source,
        fingerprint=fingerprint_of(model.state_dict(), [name]),
        image_size=(size[0], size[1]),
        channels=channels,
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        layers=("features",),
        tokens=tokens,
        has_class_token=getattr(model, "num_prefix_tokens", 0) > 0,
    )


def _normalisation(folder: Path, channels: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    file = folder / "preprocessor_config.json"
    if file.is_file():
        settings = json.loads(file.read_bytes()[: 2**20])
        if "image_mean" in settings:
            return tuple(settings["image_mean"]), tuple(settings["image_std"])
    return (IMAGENET_MEAN, IMAGENET_STD) if channels == 3 else ((0.5,) * channels, (0.25,) * channels)


def _pair(size: Any) -> tuple[int, int]:
    height, width = (size, size) if isinstance(size, int) else size
    return int(height), int(width)


def _grid(config: Any, size: tuple[int, int]) -> tuple[int, int] | None:
    patch = getattr(config, "patch_size", None)
    return (size[0] // patch, size[1] // patch) if isinstance(patch, int) else None
