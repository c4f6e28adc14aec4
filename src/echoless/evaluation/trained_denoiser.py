"""What is a trained diffusion model? The network, what it predicts, and the space that it works in, pixels or latents.

Sampling (generate.py) and its features (noisy.py) start from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from echoless.config import DiffusionConfig, FlowConfig
from echoless.config.training import LatentConfig
from echoless.errors import ConfigError, RunError
from echoless.models import SiT, UViT
from echoless.objectives import DiffusionObjective, FlowObjective, denoising_objective
from echoless.runs.autoencoder import VAE, open_vae
from echoless.runs.open import TrainedBody


@dataclass(frozen=True, kw_only=True)
class TrainedDenoiser:
    """`mean` and `std` are per channel of the images; `vae` maps those to latents, where the network works on them."""

    name: str
    model: UViT | SiT
    config: DiffusionConfig | FlowConfig
    mean: tuple[float, ...]
    std: tuple[float, ...]
    latent: LatentConfig | None
    vae: VAE | None
    checkpoint: int | None = None  # the step it was taken at, where the run has not ended

    @property
    def objective(self) -> DiffusionObjective | FlowObjective:
        return denoising_objective(self.config, self.shape, self.model.config.classes)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what the network is given."""
        return self.model.config.channels, *self.model.config.image_size

    @property
    def image_size(self) -> tuple[int, int]:
        return self.model.config.image_size if self.latent is None else self.latent.image_size

    @property
    def description(self) -> list[str]:
        """All that decides what the network computes, except its weights."""
        words = [repr(self.model.config), repr(self.config), repr((self.mean, self.std))]
        return words if self.latent is None else [*words, self.latent.fingerprint]


def open_denoiser(body: TrainedBody, *, device: str = "cpu", latent: str | None = None) -> TrainedDenoiser:
    """A body that denoises, with its objective and its autoencoder. `latent`: where the autoencoder is now."""
    if not isinstance(body.objective, DiffusionConfig | FlowConfig):
        raise RunError(f"{body.name} does not record its objective, diffusion or flow")
    return TrainedDenoiser(
        name=body.title,
        model=body.model.to(device).eval(),
        config=body.objective,
        mean=body.mean,
        std=body.std,
        latent=body.latent,
        vae=_autoencoder(body.name, body.latent, latent, device),
        checkpoint=body.step if body.is_checkpoint else None,
    )


def _autoencoder(name: str, space: LatentConfig | None, given: str | None, device: str) -> VAE | None:
    """The autoencoder that the denoiser was trained with, and no other; None for a model of pixels."""
    if space is None:
        if given is not None:
            raise ConfigError(f"latent is {given!r}, but {name} was trained on pixels")
        return None
    folder = Path(given or space.path)
    if not folder.is_dir():
        raise ConfigError(f"the autoencoder {folder} of {name} does not exist; give its folder by --latent")
    vae = open_vae(folder, device)
    if vae.fingerprint != space.fingerprint:
        raise ConfigError(f"the autoencoder {folder} differs from the one {name} was trained with")
    return vae
