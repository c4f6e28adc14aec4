"""What can be evaluated? Anything that turns images into tokens: a run, an encoder folder, another library's model."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echoless.config import ResNetConfig, ViTConfig, from_dict
from echoless.errors import ConfigError, RunError
from echoless.measures.threads import one_thread_each
from echoless.models import ResNet, ViT
from echoless.randomness import generator_for
from echoless.runs import Weights, load_weights, require_same_shortcuts

# Numbers in the tokens of one layer. On a CPU more of them leave its cache, and their memory goes back to the system
# and is asked for again at every layer: a quarter slower at 32 x 32, a sixth at 224 x 224.
MOST_AT_ONCE = 2**19
RAW_SIDE = 16  # a probe on more pixels costs the cube of their number, and tells no more

Tokens = dict[str, Tensor]  # layer -> (B, T, D); token 0 is the class token where there is one


@dataclass(frozen=True, kw_only=True)
class Encoder:
    """A frozen feature extractor. `tokens(images, layers)` never masks and is never random."""

    name: str
    fingerprint: str  # of the weights and everything else that decides the features
    image_size: tuple[int, int]
    channels: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    layers: tuple[str, ...]  # in the order of the network; the last one is the default
    tokens: Callable[[Tensor, Sequence[str]], Tokens]
    has_class_token: bool = True
    grid: tuple[int, int] | None = None  # rows and columns of patch tokens
    untrained: Callable[[], Encoder] | None = None
    # Of diffusion models alone (evaluation/noisy.py):
    noise: float | None = None  # the level at which images are shown, 0 to 1
    noisy_tokens: Callable[[Tensor, Sequence[str], Tensor], Tokens] | None = None  # with the indices of the images
    at_noise: Callable[[float], Encoder] | None = None  # the same network at another level
    middle: str | None = None  # the layer where its halves meet: the default, as the last one is close to pixels

    @property
    def default_layer(self) -> str:
        return self.middle or self.layers[-1]

    def tokens_of(self, images_BCHW: Tensor, layers: Sequence[str], ids_B: Tensor) -> Tokens:
        """The tokens of images whose indices are known; they decide the noise, where there is any."""
        if self.noisy_tokens is None:
            return self.tokens(images_BCHW, layers)
        return self.noisy_tokens(images_BCHW, layers, ids_B)


def open_encoder(
    source: str | Path | Callable[[Tensor], Tensor],
    *,
    device: str = "cpu",
    noise: float | None = None,
    latent: str | None = None,
    **given: Any,
) -> Encoder:
    """From a run, an encoder or snapshot folder, a transformers folder, a timm name, or a function of images.

    A function needs `image_size` and `channels`, and may be given `mean` and `std`. `noise` is the level, 0 to 1, at
    which a diffusion model is shown the images; `latent` where the autoencoder of one of latents is now.
    """
    if callable(source):
        return from_function(source, **given)
    encoder = _open_path(source, device, noise, latent)
    for name, value in (("noise", noise), ("latent", latent)):
        if value is not None and encoder.noise is None:
            raise ConfigError(f"{name} is {value!r}, but {source} is no diffusion model; allowed: no {name}")
    return encoder


def _open_path(source: str | Path, device: str, noise: float | None, latent: str | None) -> Encoder:
    path = Path(source)
    if (path / "checkpoints").is_dir() or (path / "encoder").is_dir():
        if not (path / "encoder" / "config.json").is_file():
            raise RunError(f"{path} has no encoder yet: the run is not complete; finish it with --resume")
        return from_folder(path / "encoder", device, noise, latent)
    if (path / "config.json").is_file():
        described = json.loads((path / "config.json").read_bytes()[: 2**22])
        if isinstance(described, dict) and "model_type" in described:
            from echoless.evaluation.foreign_encoders import from_transformers

            return from_transformers(path, device)
        return from_folder(path, device, noise, latent)
    if path.exists():
        raise RunError(f"{path} is neither a run, nor an encoder folder, nor a transformers folder")
    if str(source).startswith(("timm:", "local-dir:")):
        from echoless.evaluation.foreign_encoders import from_timm

        return from_timm(str(source), device)
    raise RunError(f"{source} does not exist; allowed: a run, an encoder folder, a transformers folder, or timm:NAME")


def from_folder(folder: Path, device: str = "cpu", noise: float | None = None, latent: str | None = None) -> Encoder:
    """An encoder or a diffusion model (at a level of noise) that a run wrote, or that was imported."""
    weights = load_weights(folder)
    if weights.config.get("kind") in ("uvit", "sit"):
        from echoless.evaluation.denoiser import read_denoiser
        from echoless.evaluation.noisy import from_denoiser

        denoiser = read_denoiser(weights, name=str(folder), device=device, latent=latent)
        return from_denoiser(denoiser, noise=noise, device=device)
    described = weights.config.get("model", {})
    vit: ViT | ResNet
    if weights.config.get("kind") == "resnet":
        vit = ResNet(from_dict(ResNetConfig, described, "model"))
    else:
        vit = ViT(from_dict(ViTConfig, described, "model"))
    load_into(vit, weights, folder)
    mean, std = (tuple(weights.config.get(key) or ()) for key in ("mean", "std"))
    return from_vit(vit, name=str(folder), mean=mean, std=std, device=device)


def load_into(model: Any, weights: Weights, folder: Path | str) -> None:
    """Refuses weights of other shapes, or trained under other shortcuts, than the config beside them says."""
    require_same_shortcuts(model.shortcut_record, weights.shortcuts, names=("its config", "its weights"))
    try:
        model.load_state_dict(weights.tensors)
    except RuntimeError as error:
        raise RunError(
            f"the weights in {folder} do not fit their config: {' '.join(str(error).split())[:300]}"
        ) from None


def from_vit(
    vit: ViT | ResNet, *, name: str, mean: tuple[float, ...] = (), std: tuple[float, ...] = (), device: str = "cpu"
) -> Encoder:
    """One of our own encoders, in memory: a ViT, or a ResNet, whose tokens are the places of its map."""
    config, convolutional = vit.config, isinstance(vit, ResNet)
    vit = vit.to(device).eval()
    together = _together(config) if isinstance(config, ViTConfig) and device == "cpu" else None

    def tokens(images_BCHW: Tensor, layers: Sequence[str]) -> Tokens:
        if together is None:
            return dict(vit.features(images_BCHW.to(device), only=layers))
        with one_thread_each() as pool:
            parts = list(pool.map(lambda images: vit.features(images, only=layers), images_BCHW.split(together)))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def untrained() -> Encoder:
        generator = generator_for(0, "init", 0)
        fresh = ViT(config, generator) if isinstance(config, ViTConfig) else ResNet(config, generator)
        return from_vit(fresh, name="untrained encoder", mean=mean, std=std, device=device)

    return Encoder(
        name=name,
        fingerprint=fingerprint_of(vit.state_dict(), [repr(config), repr(vit.shortcut_record), repr((mean, std))]),
        image_size=config.image_size,
        channels=config.channels,
        mean=mean or (0.0,) * config.channels,
        std=std or (1.0,) * config.channels,
        layers=tuple(f"block{index:02d}/+{'conv' if convolutional else 'mlp'}" for index in range(config.blocks)),
        tokens=tokens,
        has_class_token=not convolutional,
        grid=config.grid if isinstance(config, ViTConfig) else None,
        untrained=untrained,
    )


def _together(config: ViTConfig) -> int:
    """How many images suit the cache of a core: a power of two."""
    one = (1 + config.grid[0] * config.grid[1]) * config.width
    return 2 ** max(0, int(math.log2(MOST_AT_ONCE / one)))


def from_function(
    function: Callable[[Tensor], Tensor],
    *,
    image_size: tuple[int, int],
    channels: int,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    name: str = "function",
    fingerprint: str | None = None,
) -> Encoder:
    """Any callable: images (B, C, H, W) to vectors (B, D) or tokens (B, T, D). Never cached unless fingerprinted."""

    @torch.no_grad()
    def tokens(images_BCHW: Tensor, layers: Sequence[str]) -> Tokens:
        output = function(images_BCHW)
        if output.ndim not in (2, 3):
            raise ConfigError(f"the encoder returns shape {tuple(output.shape)}; allowed: (B, D) or (B, T, D)")
        return {"output": output[:, None] if output.ndim == 2 else output}

    return Encoder(
        name=name,
        fingerprint=fingerprint or "",
        image_size=image_size,
        channels=channels,
        mean=mean or (0.0,) * channels,
        std=std or (1.0,) * channels,
        layers=("output",),
        tokens=tokens,
        has_class_token=False,
    )


def raw_pixels(encoder: Encoder) -> Encoder:
    """The first row of every table: the image itself as the feature, averaged down to at most 16 x 16."""
    size = encoder.image_size

    def flatten(images_BCHW: Tensor) -> Tensor:
        shown = (min(RAW_SIDE, size[0]), min(RAW_SIDE, size[1]))
        return torch.nn.functional.adaptive_avg_pool2d(images_BCHW, shown).flatten(1)

    return from_function(
        flatten,
        image_size=size,
        channels=encoder.channels,
        mean=encoder.mean,
        std=encoder.std,
        name="raw pixels",
        fingerprint=fingerprint_of(
            {}, ["raw pixels", str(RAW_SIDE), repr((size, encoder.channels, encoder.mean, encoder.std))]
        ),
    )


def fingerprint_of(tensors: dict[str, Tensor], words: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode() + b"\0")
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode() + b"\0" + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
