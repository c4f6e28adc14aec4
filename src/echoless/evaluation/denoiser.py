"""How does a network that removes noise become an encoder? It is shown each image with a fixed amount of noise.

The level counts from 0, the image itself, to 1, noise alone, whichever way the network's own time runs. The noise of
image i depends on (seed, set, i) alone: features are deterministic, the same in every batch, and no image of a test set
shares its noise with one of the training set. No label is given.
The tokens are those of the patches; time and label, where they are tokens, are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from echoless.config import DiffusionConfig, FlowConfig, SiTConfig, UViTConfig, from_dict
from echoless.config.checks import require_number
from echoless.errors import RunError
from echoless.evaluation.encoder import Encoder, Tokens, fingerprint_of, load_into
from echoless.models import SiT, UViT
from echoless.objectives import denoising_objective, noised
from echoless.randomness import generator_for
from echoless.runs import Weights

DEFAULT_NOISE = 0.1
KINDS: dict[str, tuple[Any, Any]] = {"uvit": (UViTConfig, UViT), "sit": (SiTConfig, SiT)}
OBJECTIVES: dict[str, Any] = {"diffusion": DiffusionConfig, "flow": FlowConfig}


def from_denoiser_weights(
    weights: Weights, *, name: str, noise: float | None, seed: int = 0, device: str = "cpu"
) -> Encoder:
    """A diffusion transformer that a run wrote, or that was imported."""
    config_type, network = KINDS[weights.config["kind"]]
    config = from_dict(config_type, weights.config.get("model", {}), "model")
    described = weights.config.get("objective") or {}
    kind = described.get("kind") if isinstance(described, dict) else None
    if kind not in OBJECTIVES:
        raise RunError(f"{name} does not say what it was trained to predict; allowed: {', '.join(OBJECTIVES)}")
    objective = from_dict(OBJECTIVES[kind], described, "objective")
    model = network(config)
    load_into(model, weights, name)
    mean, std = (tuple(weights.config.get(key) or ()) for key in ("mean", "std"))
    return from_denoiser(model, objective, name=name, noise=noise, seed=seed, mean=mean, std=std, device=device)


def from_denoiser(
    model: UViT | SiT,
    objective: DiffusionConfig | FlowConfig,
    *,
    name: str,
    noise: float | None = None,
    seed: int = 0,
    mean: tuple[float, ...] = (),
    std: tuple[float, ...] = (),
    device: str = "cpu",
) -> Encoder:
    """One of our own diffusion transformers, in memory, at one level of noise."""
    level = DEFAULT_NOISE if noise is None else noise
    require_number("noise", level, 0, 1)
    config, model = model.config, model.to(device).eval()
    shape = (config.channels, *config.image_size)
    path = denoising_objective(objective, shape, config.classes)

    def noisy_tokens(images_BCHW: Tensor, layers: Sequence[str], ids_B: Tensor) -> Tokens:
        draws = [torch.randn(shape, generator=generator_for(seed, "noise", index)) for index in ids_B.tolist()]
        shown, time_B = noised(path, images_BCHW.to(device), level, torch.stack(draws).to(device))
        features = model.features(shown, time_B, only=layers)
        return {layer: tokens_BTD[:, config.extra_tokens :] for layer, tokens_BTD in features.items()}

    def at(other: float) -> Encoder:
        return from_denoiser(model, objective, name=name, noise=other, seed=seed, mean=mean, std=std, device=device)

    def untrained() -> Encoder:
        fresh = type(model)(config, generator_for(0, "init", 0))  # type: ignore[arg-type]
        return from_denoiser(
            fresh, objective, name="untrained network", noise=level, seed=seed, mean=mean, std=std, device=device
        )

    layers = tuple(f"block{index:02d}/+mlp" for index in range(config.blocks))
    words = [
        repr(config),
        repr(objective),
        repr(model.shortcut_record),
        repr((mean, std)),
        repr((level, seed)),
        "noise by set",
    ]
    return Encoder(
        name=name,
        fingerprint=fingerprint_of(model.state_dict(), words),
        image_size=config.image_size,
        channels=config.channels,
        mean=mean or (0.0,) * config.channels,
        std=std or (1.0,) * config.channels,
        layers=layers,
        middle=layers[(config.blocks - 1) // 2],
        tokens=lambda images_BCHW, layers: noisy_tokens(images_BCHW, layers, torch.arange(len(images_BCHW))),
        noise=level,
        noisy_tokens=noisy_tokens,
        at_noise=at,
        has_class_token=False,
        grid=config.grid,
        untrained=untrained,
    )
