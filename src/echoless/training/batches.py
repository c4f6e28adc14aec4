"""Which loader makes the training batches of a config? One of images, or one of latents."""

from __future__ import annotations

from echoless.config import RunConfig
from echoless.data import AugmentConfig, Images, LatentLoader, Latents, Loader
from echoless.runtime import Team


def make_loader(
    config: RunConfig, images: Images, team: Team, workers: int, latents: Latents | None = None
) -> Loader | LatentLoader:
    """This process's part of every batch, by `workers` threads."""
    if latents is not None:
        return LatentLoader(
            images,
            latents,
            batch_size=config.batch_size,
            seed=config.seed,
            flip=config.data.flip,
            workers=workers,
            rank=team.rank,
            world=team.world,
        )
    return Loader(
        images,
        size=config.model.image_size,
        batch_size=config.batch_size,
        seed=config.seed,
        mean=config.data.mean,
        std=config.data.std,
        augment=AugmentConfig(
            scale=config.data.crop_scale,
            flip=config.data.flip,
            interpolation=config.data.interpolation,
            rand_augment=getattr(config.objective, "rand_augment", None),
        ),
        views=config.views,
        workers=workers,
        rank=team.rank,
        world=team.world,
    )
