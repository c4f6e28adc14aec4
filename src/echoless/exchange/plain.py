"""How does a faded encoder become one that other libraries can hold: plain residuals, and one eps for every norm?

Folding (shortcuts/fold.py) is exact when the eps of each norm is scaled by the square of its stream's factor r. Other
libraries have one eps for all norms. It is chosen where it matters most: at the first norm, whose input is smallest.
Where a library has fixed the eps, the whole stream is scaled instead, which moves the same quotient. Either way the
result is compared with the original on images that are hard on eps (flat and faint ones), and the error is stated.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from echoless.config import ViTConfig
from echoless.errors import ConfigError
from echoless.models import ViT
from echoless.randomness import generator_for
from echoless.shortcuts import fold, stream_factors

TOLERANCE = 1e-4  # largest relative error of an export
_AS_GOOD_AS_EXACT = 1e-5


@dataclass(frozen=True)
class Plain:
    """A ViT with alpha 1 everywhere and one eps, whose stream is `scale` times the original's."""

    encoder: ViT
    eps: float
    scale: float
    error: float  # of its last block, divided by `scale`, against the original


class Probe(NamedTuple):
    """Images, and the tokens (B, T, D) that the original's last block makes of them."""

    images: Tensor
    tokens: Tensor


def folded(encoder: ViT) -> ViT:
    """Plain shortcuts, exact: each norm has an eps of its own."""
    try:
        return fold(encoder)
    except ValueError as error:
        raise ConfigError(f"this encoder cannot be folded into a plain one: {error}") from None


def make_probe(encoder: ViT) -> Probe:
    images = probe_images(encoder.config)
    return Probe(images, last_block(encoder, images))


def probe_images(config: ViTConfig) -> Tensor:
    """Four normalised images, always the same: noise, faint noise, none, and coarse blocks."""
    generator = generator_for(0, "probe", 0)
    noise = torch.randn(4, config.channels, *config.image_size, generator=generator)
    coarse = torch.randn(1, config.channels, 2, 2, generator=generator)
    blocks = nn.functional.interpolate(coarse, size=config.image_size)
    return torch.cat([noise[:1], 0.05 * noise[1:2], 0 * noise[2:3], blocks])


@torch.no_grad()
def last_block(encoder: ViT, images: Tensor) -> Tensor:
    """The feature: the tokens of the last block, before any norm."""
    x_BTD = encoder.embed(images)
    for block in encoder.blocks:
        x_BTD = block(x_BTD)
    return x_BTD


def relative_error(tokens: Tensor, expected: Tensor) -> float:
    """The largest distance between a token and its original, over the original's length. Not a number counts as inf."""
    error = (tokens - expected).norm(dim=-1) / expected.norm(dim=-1).clamp_min(torch.finfo(torch.float32).tiny)
    worst = float(error.max())
    return worst if worst == worst else float("inf")


def with_one_eps(encoder: ViT, probe: Probe) -> Plain:
    """The same features, by an encoder whose norms share one eps."""
    base, (first, *_) = folded(encoder), _factors(encoder)
    exact = encoder.config.norm_eps * first**2
    candidates = sorted({exact * ratio for ratio in (0.1, 1.0, 3.0, 10.0)} | {encoder.config.norm_eps})
    tried = [_measured(base, eps, 1.0, probe) for eps in candidates if eps > 0]
    if not tried:
        raise ConfigError("this encoder cannot be folded: its alphas multiply to less than float32 can hold")
    return min(tried, key=lambda plain: plain.error)


def with_given_eps(encoder: ViT, eps: float, probe: Probe) -> Plain:
    """The same features times a constant, by an encoder whose norms have this eps; the constant is 1 if it can be."""
    base, (first, *_) = folded(encoder), _factors(encoder)
    unscaled = _measured(base, eps, 1.0, probe)
    if unscaled.error <= _AS_GOOD_AS_EXACT or first == 0:
        return unscaled
    scaled = _measured(base, eps, (eps / encoder.config.norm_eps) ** 0.5 / first, probe)
    return min(unscaled, scaled, key=lambda plain: plain.error)


def _factors(encoder: ViT) -> tuple[float, ...]:
    alphas = encoder.shortcut_record["alphas"]
    return stream_factors(alphas, [1.0] * len(alphas))


@torch.no_grad()
def _measured(base: ViT, eps: float, scale: float, probe: Probe) -> Plain:
    encoder = copy.deepcopy(base)
    for tensor in encoder.embeddings():
        tensor.mul_(scale)
    for branch in encoder.branches():
        branch.output.weight.mul_(scale)
        branch.output.bias.mul_(scale)
        assert isinstance(branch.norm, nn.LayerNorm)
        branch.norm.eps = eps
    error = relative_error(last_block(encoder, probe.images) / scale, probe.tokens)
    return Plain(encoder, eps, scale, error)
