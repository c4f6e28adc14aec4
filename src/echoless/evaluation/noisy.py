"""How does a diffusion model become an encoder? It is given each image with a fixed amount of noise.

The noise level runs from 0, the image itself, to 1, noise alone, whichever way the network's own time runs. The noise
of image i depends on (seed, set, i) alone: features are deterministic, the same in every batch, and no image of a test
set shares its noise with one of the training set. No label is given. A model of latents is given the mean of the
autoencoder's posterior, with noise. The tokens are those of the patches; time and label, where they are tokens, are
left out.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from echoless.config.checks import require_number
from echoless.data.resizing import DIFFUSION
from echoless.evaluation.encoder import Encoder, Layers, Tokens
from echoless.evaluation.trained_denoiser import TrainedDenoiser
from echoless.models import fresh
from echoless.objectives import noised
from echoless.randomness import generator_for
from echoless.runs.open import fingerprint_of

DEFAULT_NOISE = 0.1


def from_denoiser(
    denoiser: TrainedDenoiser, *, noise: float | None = None, seed: int = 0, device: str = "cpu"
) -> Encoder:
    """A diffusion transformer at one level of noise."""
    level = DEFAULT_NOISE if noise is None else noise
    require_number("noise", level, 0, 1)
    model, path, vae = denoiser.model, denoiser.objective, denoiser.vae
    config = model.config

    def noisy_tokens(images_BCHW: Tensor, layers: Layers, ids_B: Tensor) -> Tokens:
        draws = [torch.randn(denoiser.shape, generator=generator_for(seed, "noise", index)) for index in ids_B.tolist()]
        seen = images_BCHW.to(device) if vae is None else vae.latents(images_BCHW)
        shown, time_B = noised(path, seen, level, torch.stack(draws).to(device))
        features = model.features(shown, time_B, only=layers)
        return {layer: tokens_BTD[:, config.extra_tokens :] for layer, tokens_BTD in features.items()}

    def untrained() -> Encoder:
        start = fresh(config, generator_for(0, "init", 0)).to(device).eval()
        other = replace(denoiser, name="untrained network", model=start, checkpoint=None)
        return from_denoiser(other, noise=level, seed=seed, device=device)

    words = [*denoiser.description, repr(model.shortcut_record), repr((level, seed)), "noise by set"]
    return Encoder(
        name=denoiser.name,
        fingerprint=fingerprint_of(model.state_dict(), words),
        image_size=denoiser.image_size,
        channels=len(denoiser.mean),
        mean=denoiser.mean,
        std=denoiser.std,
        framing=DIFFUSION,
        layers=config.feature_layers,
        middle=config.feature_layers[(config.blocks - 1) // 2],
        tokens=lambda images_BCHW, layers: noisy_tokens(images_BCHW, layers, torch.arange(len(images_BCHW))),
        noise=level,
        noisy_tokens=noisy_tokens,
        at_noise=lambda other: from_denoiser(denoiser, noise=other, seed=seed, device=device),
        has_class_token=config.has_class_token,
        grid=config.grid,
        untrained=untrained,
        checkpoint=denoiser.checkpoint,
    )
