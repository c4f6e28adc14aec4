"""How is a frozen encoder opened? `echoless.load(PATH)`, which `evaluate` and `embed` use too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from echoless.config.options.fields import at_home
from echoless.errors import ConfigError, RunError
from echoless.evaluation.encoder import Encoder, from_body
from echoless.evaluation.foreign_encoders import from_timm, from_transformers
from echoless.evaluation.noisy import from_denoiser
from echoless.evaluation.trained_denoiser import open_denoiser
from echoless.runs.open import SOURCES, load_body, trained_tiles
from echoless.runtime import choose_device
from echoless.storage import read_json_object


def load(
    path: str | Path, *, device: str = "cpu", noise: float | None = None, latent: str | Path | None = None
) -> Encoder:
    """A frozen encoder from a run, a checkpoint, a snapshot, an encoder folder, a transformers folder or `timm:NAME`.

    A run that has not ended gives its newest valid checkpoint, and the name says so. noise: the noise level, 0 to 1, at
    which a diffusion model is given its images (default 0.1). latent: the folder of the autoencoder of a model of
    latents, where it is not the one that the run names.

        encoder = echoless.load("runs/first")
        image = encoder.preprocess(PIL.Image.open("photo.jpg"))      # (C, H, W), normalised
        vector = encoder(image[None])[0]                             # (D,): the mean over the last block's tokens
        every = encoder.features(image[None])                        # every["block03/+attn"] is (1, tokens, D)
        table = encoder.embed("photos/")                             # path, feature, label: a pyarrow table
    """
    encoder = _open(at_home(path), str(choose_device(device)), noise, None if latent is None else at_home(latent))
    for name, value in (("noise", noise), ("latent", latent)):
        if value is not None and encoder.noise is None:
            raise ConfigError(f"{name} is {value!r}, but {path} is not a diffusion model")
    return encoder


def _open(source: str, device: str, noise: float | None, latent: str | None) -> Encoder:
    path = Path(source)
    if source.startswith(("timm:", "local-dir:")):
        return from_timm(source, device)
    if not path.exists():
        raise RunError(f"{source} does not exist; allowed: {SOURCES}, a transformers folder, or timm:NAME")
    if (path / "config.json").is_file() and "model_type" in read_json_object(path / "config.json"):
        return from_transformers(path, device)
    body = load_body(path)
    if body.config.denoises:
        encoder = from_denoiser(open_denoiser(body, device=device, latent=latent), noise=noise, device=device)
    else:
        encoder = from_body(body, device)
    return replace(encoder, tiles=trained_tiles(path))
