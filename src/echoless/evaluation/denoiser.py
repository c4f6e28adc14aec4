"""What is a trained denoiser, and how is it read? The network, what it predicts, and the space that it sees.

Whoever draws images with it (generate.py) or looks at its features (noisy.py) opens it here.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config import DiffusionConfig, FlowConfig, SiTConfig, UViTConfig, from_dict
from echoless.config.training import LatentConfig
from echoless.errors import ConfigError, RunError
from echoless.evaluation.encoder import load_into
from echoless.models import SiT, UViT
from echoless.objectives import DiffusionObjective, FlowObjective, denoising_objective
from echoless.runs import Weights
from echoless.runs.autoencoder import VAE, open_vae

KINDS: dict[Any, tuple[Any, Any]] = {"uvit": (UViTConfig, UViT), "sit": (SiTConfig, SiT)}
OBJECTIVES: dict[Any, Any] = {"diffusion": DiffusionConfig, "flow": FlowConfig}


@dataclass(frozen=True, kw_only=True)
class TrainedDenoiser:
    """`mean` and `std` are per channel of the images; `vae` turns those into what the network sees, if it is not them.

    `description` is all that decides what the network does but its weights.
    """

    name: str
    model: UViT | SiT
    config: DiffusionConfig | FlowConfig
    mean: tuple[float, ...]
    std: tuple[float, ...]
    latent: LatentConfig | None
    vae: VAE | None

    @property
    def objective(self) -> DiffusionObjective | FlowObjective:
        return denoising_objective(self.config, self.shape, self.model.config.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what the network sees."""
        return self.model.config.channels, *self.model.config.image_size

    @property
    def image_size(self) -> tuple[int, int]:
        return self.model.config.image_size if self.latent is None else self.latent.image_size

    @property
    def description(self) -> list[str]:
        words = [repr(self.model.config), repr(self.config), repr((self.mean, self.std))]
        return words if self.latent is None else [*words, self.latent.fingerprint]


def read_denoiser(weights: Weights, *, name: str, device: str = "cpu", latent: str | None = None) -> TrainedDenoiser:
    """A diffusion transformer that a run wrote, or that was imported. `latent`: where its autoencoder is now."""
    described = weights.config
    if described.get("kind") not in KINDS:
        kind = described.get("kind")
        raise RunError(f"{name} holds a {kind!r}, which is no diffusion model; allowed: {', '.join(KINDS)}")
    config_type, network = KINDS[described["kind"]]
    model = network(from_dict(config_type, described.get("model", {}), "model"))
    load_into(model, weights, name)
    about = described.get("objective")
    kind = about.get("kind") if isinstance(about, dict) else None
    if kind not in OBJECTIVES:
        raise RunError(f"{name} does not say what it was trained to predict; allowed: {', '.join(OBJECTIVES)}")
    space = described.get("latent")
    space = None if space is None else from_dict(LatentConfig, space, "latent")
    mean, std = (tuple(described.get(key) or (0.5,) * model.config.channels) for key in ("mean", "std"))
    return TrainedDenoiser(
        name=name,
        model=model.to(device).eval(),
        config=from_dict(OBJECTIVES[kind], about, "objective"),
        mean=mean,
        std=std,
        latent=space,
        vae=_autoencoder(name, space, latent, device),
    )


def _autoencoder(name: str, space: LatentConfig | None, given: str | None, device: str) -> VAE | None:
    """The autoencoder that the denoiser was trained with, or none; never another."""
    if space is None:
        if given is not None:
            raise ConfigError(f"latent is {given!r}, and {name} was trained on pixels; allowed: no --latent")
        return None
    folder = Path(given or space.path)
    if not folder.is_dir():
        raise ConfigError(f"the autoencoder {folder} of {name} is not there; allowed: --latent with its folder")
    vae = open_vae(folder, device)
    if vae.fingerprint != space.fingerprint:
        raise ConfigError(f"the autoencoder {folder} is not the one {name} was trained with; allowed: that one")
    return vae
