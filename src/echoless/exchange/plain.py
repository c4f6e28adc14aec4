"""How does a faded encoder become one that other libraries can hold: plain residuals, and one eps for every norm?

Folding (shortcuts/fold.py) is exact when the eps of each norm is scaled by the square of its stream's factor r. Other
libraries have one eps for all norms. It is chosen where it matters most, near what the first norm needs, whose input is
smallest. Where a library has fixed the eps, the whole stream is scaled instead, which moves the same quotient. Either
way the choice is made by comparing with the original on images that are hard on eps (flat and faint ones), and the
error is stated. It grows where a stream is so small that eps decides: in encoders that have hardly been trained.
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
_AROUND_EXACT = (0.3, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25, 1.6, 2.5, 6.0)  # times the eps that the first norm needs


@dataclass(frozen=True)
class Plain:
    """A ViT with alpha 1 everywhere and one eps, whose stream is `scale` times the original's."""

    encoder: ViT
    eps: float
    scale: float
    error: float  # of its last block, divided by `scale`, against the original


class ReferenceTokens(NamedTuple):
    """Images, and the tokens (B, T, D) that the original's last block makes of them."""

    images: Tensor
    tokens: Tensor


def folded(encoder: ViT) -> ViT:
    """Plain shortcuts, exact: each norm has an eps of its own."""
    try:
        return fold(encoder)
    except ValueError as error:
        raise ConfigError(f"this encoder cannot be folded into a plain one: {error}") from None


def reference_tokens(encoder: ViT) -> ReferenceTokens:
    images = reference_images(encoder.config)
    return ReferenceTokens(images, last_block(encoder, images))


def reference_images(config: ViTConfig) -> Tensor:
    """Four normalised images, always the same: noise, faint noise, none, and coarse blocks."""
    generator = generator_for(0, "probe", 0)
    noise = torch.randn(4, config.channels, *config.image_size, generator=generator)
    coarse = torch.randn(1, config.channels, 2, 2, generator=generator)
    blocks = nn.functional.interpolate(coarse, size=config.image_size)
    return torch.cat([noise[:1], 0.05 * noise[1:2], 0 * noise[2:3], blocks])


@torch.no_grad()
def last_block(encoder: ViT, images: Tensor) -> Tensor:
    """The feature: the tokens of the last block, before any norm."""
    x_BTD, places = encoder.embed(images), encoder.places(images)
    for block in encoder.blocks:
        x_BTD = block(x_BTD, places=places)
    return x_BTD


def relative_error(tokens: Tensor, expected: Tensor) -> float:
    """The distance of an image's tokens from their originals, over the length of these; the largest of all images."""
    return _worst(tokens.flatten(1), expected.flatten(1))


def token_error(tokens: Tensor, expected: Tensor) -> float:
    """The same for single tokens: a small one among large ones shows here alone."""
    return _worst(tokens, expected)


def _worst(values: Tensor, expected: Tensor) -> float:
    smallest = torch.finfo(torch.float32).tiny
    worst = float(((values - expected).norm(dim=-1) / expected.norm(dim=-1).clamp_min(smallest)).max())
    return worst if worst == worst else float("inf")  # not a number is as wrong as can be


def with_one_eps(encoder: ViT, reference: ReferenceTokens) -> Plain:
    """The same features, by an encoder whose norms share one eps."""
    base, (first, *_) = folded(encoder), _factors(encoder)
    exact = encoder.config.norm_eps * first**2
    candidates = {min(exact * ratio, encoder.config.norm_eps) for ratio in _AROUND_EXACT}
    tried = [_measured(base, eps, 1.0, reference) for eps in sorted(candidates) if eps > 0]
    if not tried:
        raise ConfigError("this encoder cannot be folded: its alphas multiply to less than float32 can hold")
    return min(tried, key=lambda plain: (plain.error, abs(plain.eps - exact)))  # of a plain encoder, its own


def with_given_eps(encoder: ViT, eps: float, reference: ReferenceTokens) -> Plain:
    """The same features times a constant, by an encoder whose norms have this eps; the constant is 1 if it can be."""
    base, (first, *_) = folded(encoder), _factors(encoder)
    unscaled = _measured(base, eps, 1.0, reference)
    if unscaled.error <= _AS_GOOD_AS_EXACT or first == 0:
        return unscaled
    exact = eps / (encoder.config.norm_eps * first**2)  # the square of the scale that the first norm needs
    scaled = [_measured(base, eps, (exact / ratio) ** 0.5, reference) for ratio in _AROUND_EXACT]
    return min([unscaled, *scaled], key=lambda plain: plain.error)


def _factors(encoder: ViT) -> tuple[float, ...]:
    alphas = encoder.shortcut_record["alphas"]
    return stream_factors(alphas, [1.0] * len(alphas))


@torch.no_grad()
def _measured(base: ViT, eps: float, scale: float, reference: ReferenceTokens) -> Plain:
    encoder = copy.deepcopy(base)
    for tensor in encoder.embeddings():
        tensor.mul_(scale)
    for branch in encoder.branches():
        branch.output.weight.mul_(scale)
        branch.output.bias.mul_(scale)
        assert isinstance(branch.norm, nn.LayerNorm)
        branch.norm.eps = eps
    error = relative_error(last_block(encoder, reference.images) / scale, reference.tokens)
    return Plain(encoder, eps, scale, error)
