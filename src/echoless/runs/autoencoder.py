"""How do pixels become latents, and latents pixels? By a frozen autoencoder of diffusers, read from a folder."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from echoless.config.extras import install_command
from echoless.errors import ConfigError
from echoless.storage.remembered import remembered_sha256
from echoless.storage.seal import seal_of

KINDS = ("AutoencoderKL", "AutoencoderTiny")


class LatentMoments(NamedTuple):
    """The Gaussian of a latent (B, C, H, W); std is 0 where the autoencoder has none."""

    mean: Tensor
    std: Tensor


@dataclass(frozen=True, kw_only=True)
class VAE:
    """Images lie in [-1, 1]; latents are the autoencoder's own, and are trained on as (latent - shift) * scale."""

    network: Any
    fingerprint: str  # SHA-256 of its config and weights
    channels: int  # of the images
    scale: float
    shift: float
    device: str

    @torch.no_grad()
    def encode(self, images_BCHW: Tensor) -> LatentMoments:
        coded = self.network.encode(images_BCHW.to(self.device))
        if hasattr(coded, "latent_dist"):
            return LatentMoments(coded.latent_dist.mean.cpu(), coded.latent_dist.std.cpu())
        return LatentMoments(coded.latents.cpu(), torch.zeros_like(coded.latents.cpu()))

    def latents(self, images_BCHW: Tensor) -> Tensor:
        """The middle of each Gaussian, as a denoiser is trained on it."""
        return (self.encode(images_BCHW).mean.to(self.device) - self.shift) * self.scale

    @torch.no_grad()
    def decode(self, trained_BCHW: Tensor) -> Tensor:
        """Of what a denoiser was trained on."""
        return self.network.decode(trained_BCHW.to(self.device) / self.scale + self.shift).sample

    def latent_shape(self, size: tuple[int, int]) -> tuple[int, int, int]:
        """(channels, height, width) of the latent of an image of this size."""
        _, *shape = self.encode(torch.zeros(1, self.channels, *size)).mean.shape
        return shape[0], shape[1], shape[2]


def open_vae(folder: Path, device: str = "cpu", memory: Path | None = None) -> VAE:
    """An AutoencoderKL or AutoencoderTiny that diffusers saved; safetensors only, nothing is downloaded.

    memory: a folder in which the hashes of its files are remembered.
    """
    config = require_vae(folder)
    try:
        import diffusers
    except Exception as error:  # a broken install counts as none
        raise ConfigError(
            f"latent is {str(folder)!r}, which needs the extra hf ({install_command('hf')}): {error}"
        ) from None
    try:
        kind = getattr(diffusers, config["_class_name"])
        network = kind.from_pretrained(folder, local_files_only=True, use_safetensors=True, low_cpu_mem_usage=False)
    except Exception as error:
        raise ConfigError(f"the autoencoder in {folder} cannot be read: {' '.join(str(error).split())[:300]}") from None
    return VAE(
        network=network.to(device).eval().requires_grad_(False),
        fingerprint=fingerprint(folder, memory),
        channels=image_channels(config),
        scale=float(config.get("scaling_factor") or 1.0),
        shift=float(config.get("shift_factor") or 0.0),
        device=device,
    )


def image_channels(config: dict[str, Any]) -> int:
    """Of the images that an autoencoder of this config takes."""
    channels = config.get("in_channels", 3)
    if not isinstance(channels, int) or channels < 1:
        raise ConfigError(f"in_channels of the autoencoder is {channels!r}; allowed: a whole number, 1 or more")
    return channels


def fingerprint(folder: Path, memory: Path | None = None) -> str:
    digest = hashlib.sha256()
    for file in (folder / "config.json", *sorted(folder.glob("*.safetensors"))):
        sha256 = seal_of(file).sha256 if memory is None else remembered_sha256(file, memory)
        digest.update(bytes.fromhex(sha256))
    return digest.hexdigest()


def require_vae(folder: Path) -> dict[str, Any]:
    """The config of an autoencoder folder; refuses early what is none."""
    try:
        config = json.loads((folder / "config.json").read_bytes()[: 2**22])
        kind = config["_class_name"]
    except (OSError, ValueError, KeyError, TypeError):
        kind = None
    if kind not in KINDS:
        raise ConfigError(
            f"latent is {str(folder)!r}; allowed: a folder that holds an {' or '.join(KINDS)} of diffusers"
        )
    return config
