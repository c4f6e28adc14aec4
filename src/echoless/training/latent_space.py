"""How does `pretrain --latent` go from images to latents? An autoencoder, its input size, and cached moments."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from echoless.config import RunConfig
from echoless.config.checks import require
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions
from echoless.config.training import LatentConfig
from echoless.data import Images, Latents, cached_latents, default_cache_dir
from echoless.runs.autoencoder import VAE, open_vae
from echoless.runtime import Progress, Share, Team

SIDE = 256  # of larger images, as the published latents have it


@dataclass(frozen=True)
class LatentSpace:
    vae: VAE
    config: LatentConfig
    shape: tuple[int, int, int]  # of a latent

    def facts(self, facts: DataFacts) -> DataFacts:
        """The data as the model is given it: latents instead of images."""
        channels, height, width = self.shape
        return replace(facts, channels=channels, height=height, width=width)

    def configured(self, config: RunConfig, channels: int) -> RunConfig:
        """The config with this autoencoder; pixels reach it from -1 to 1."""
        half = (0.5,) * channels
        return replace(config, data=replace(config.data, mean=half, std=half, latent=self.config))


def open_space(options: PretrainOptions, images: Images, team: Team) -> LatentSpace | None:
    """None for a run on pixels."""
    if options.latent is None:
        return None
    vae = open_vae(Path(options.latent), str(team.device), default_cache_dir() / "content")
    size = latent_image_size(options, DataFacts(images.shape.channels, *images.typical_size, images.usable))
    require(
        images.shape.channels == vae.channels, "channels", images.shape.channels, f"{vae.channels}, as --latent takes"
    )
    shape = vae.latent_shape(size)
    factor = size[0] // shape[1]
    exact = size[0] == factor * shape[1] and size[1] == factor * shape[2]
    require(exact, "image_size", size, f"multiples of {factor}, the side of what one latent pixel stands for")
    config = LatentConfig(
        path=str(options.latent),
        fingerprint=vae.fingerprint,
        image_size=size,
        scale=vae.scale,
        shift=vae.shift,
        **({} if options.latent_precision is None else {"precision": options.latent_precision}),
    )
    return LatentSpace(vae, config, shape)


def latent_image_size(options: PretrainOptions, facts: DataFacts) -> tuple[int, int]:
    """As given, the data's own where it is small, else 256 x 256."""
    if options.image_size is not None:
        require(len(options.image_size) in (1, 2), "image_size", options.image_size, "one number, or height and width")
        require(min(options.image_size) >= 1, "image_size", options.image_size, "whole numbers, 1 or more")
        return options.image_size[0], options.image_size[-1]
    return (facts.height, facts.width) if facts.small else (SIDE, SIDE)


def encode_all(space: LatentSpace, images: Images, team: Team, share: Share, check_stop: Callable[[], None]) -> Latents:
    """By all processes, each image once. `check_stop` raises where a signal asked to stop."""
    with team.together(), Progress("encoding", len(images), "images") as progress:
        speaks = share.index == 0

        def show(done: int, total: int) -> None:
            check_stop()
            if speaks:
                progress.show(done)

        return cached_latents(
            default_cache_dir(),
            images,
            space.config,
            space.shape,
            space.vae.encode,
            show,
            say=progress.say if speaks else None,
            share=share,
        )
