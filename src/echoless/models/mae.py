"""How are masked patches predicted from visible ones? A masked autoencoder with two decoders. (Legend: layers.py.)

The decoder works on tokens in shuffled order, visible ones first: attention is permutation equivariant, positions are
added in the same order, and patches are unshuffled only to show an image. Only the hidden patches are predicted,
because only they enter the loss.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config import MAEConfig, ShortcutConfig
from echoless.config.model import Taps
from echoless.models.body import EncoderModel
from echoless.models.layers import build_blocks, initialise, linear, patchify, sincos_positions, unpatchify
from echoless.models.linear import affine
from echoless.models.vit import ViT
from echoless.shortcuts import residual


class Masking(NamedTuple):
    """Which patches are visible: the first `visible` of each sample's own order."""

    order_BN: Tensor
    visible: int

    @property
    def keep_BK(self) -> Tensor:
        return self.order_BN[:, : self.visible]

    @property
    def hidden_BM(self) -> Tensor:
        return self.order_BN[:, self.visible :]


class MAE(EncoderModel):
    """`mae(images, masking)` predicts the values of the hidden patches, in the order of `masking.hidden_BM`."""

    encoder: ViT

    def __init__(self, config: MAEConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.encoder = ViT(config.encoder, generator)
        decoder = LongSkipDecoder if config.decoder == "long_skips" else PlainDecoder
        self.decoder = decoder(config, generator)
        if config.decoder == "long_skips":  # it reads the blocks: a final norm that the encoder brings stays as it is
            self.encoder.norm.requires_grad_(False)

    def forward(self, images_BCHW: Tensor, masking: Masking) -> Tensor:
        blocks = _BlockOutputs()
        latent_BTD = self.encoder(images_BCHW, masking.keep_BK, note=blocks.note)
        seen = [self._without_registers(tokens_BTD) for tokens_BTD in (latent_BTD, *blocks.values)]
        return self.decoder(seen[0], seen[1:], masking.order_BN)

    def _without_registers(self, tokens_BTD: Tensor) -> Tensor:
        """The decoder reads the class token and the patches."""
        encoder = self.config.encoder
        if encoder.registers == 0:
            return tokens_BTD
        return torch.cat([tokens_BTD[:, : encoder.class_token], tokens_BTD[:, encoder.extra_tokens :]], dim=1)

    def reconstruct(self, images_BCHW: Tensor, masking: Masking) -> Tensor:
        """The images with their hidden patches replaced by the predictions, in the objective's own units."""
        patch = self.config.encoder.patch_size
        patches = patchify(images_BCHW, patch)
        predicted = self(images_BCHW, masking).to(patches.dtype)
        index = masking.hidden_BM[..., None].expand_as(predicted)
        return unpatchify(patches.scatter(1, index, predicted), patch, self.config.encoder.grid)


class _BlockOutputs:
    """Records every block's output, for the skips."""

    def __init__(self) -> None:
        self.values: list[Tensor] = []

    def note(self, name: str, value: Tensor) -> None:
        if name.endswith("/+mlp"):
            self.values.append(value)


def tap_blocks(depth: int, decoder_depth: int, taps: Taps = "spread") -> tuple[int, ...]:
    """The encoder blocks that feed a long skip, deepest first, one per decoder block with a skip.

    Every second block, as in the paper. If the decoder has too few blocks for all skips, "spread" takes them further
    apart, and "authors" (their code) leaves out the shallowest. The last block is always included.
    """
    stride = 2 if taps == "authors" else max(2, math.ceil(depth / decoder_depth))
    return tuple(range(depth - 1, -1, -stride))[:decoder_depth]


class LongSkip(nn.Module):
    """Adds MLP([encoder, decoder]) to the decoder's tokens, with a learned token for patches that were masked."""

    def __init__(self, width: int, encoder_width: int) -> None:
        super().__init__()
        self.encoder_width = encoder_width
        self.mask_token = nn.Parameter(torch.empty(encoder_width))
        self.fc1 = linear(encoder_width + width, width)
        self.fc2 = linear(width, width)

    def forward(self, x_BTD: Tensor, encoder_BKE: Tensor) -> Tensor:
        # fc1 of a concatenation is a sum of two linears; the encoder's part is needed for the visible tokens alone.
        from_encoder, from_decoder = self.fc1.weight.split((self.encoder_width, x_BTD.shape[-1]), dim=1)
        seen = affine(encoder_BKE, from_encoder, self.fc1.bias)
        unseen = affine(self.mask_token, from_encoder, self.fc1.bias).to(seen.dtype)
        (B, T, D), K = x_BTD.shape, encoder_BKE.shape[1]
        hidden = affine(x_BTD, from_decoder) + torch.cat([seen, unseen.expand(B, T - K, D)], dim=1)
        return residual(x_BTD, self.fc2(F.silu(hidden)))


class _Decoder(nn.Module):
    """What both decoders share: positions, blocks with plain shortcuts, and the map from tokens to pixels."""

    positions: Tensor

    def __init__(self, config: MAEConfig) -> None:
        super().__init__()
        encoder, width = config.encoder, config.decoder_width
        self.register_buffer("positions", sincos_positions(encoder.grid, width))
        self.blocks = build_blocks(
            width=width,
            depth=config.decoder_depth,
            heads=config.decoder_heads,
            mlp_ratio=encoder.mlp_ratio,
            norm_eps=encoder.norm_eps,
            shortcuts=ShortcutConfig(variant="identity", alpha_min=1.0),
        )
        self.norm = nn.LayerNorm(width, eps=encoder.norm_eps)
        self.to_pixels = linear(width, encoder.patch_values)

    def predict(self, x_BTD: Tensor, hidden: int) -> Tensor:
        return self.to_pixels(self.norm(x_BTD[:, -hidden:]))


class LongSkipDecoder(_Decoder):
    """The paper's decoder: starts from learned tokens; encoder features enter only through skips, deepest first."""

    def __init__(self, config: MAEConfig, generator: torch.Generator | None) -> None:
        super().__init__(config)
        width = config.decoder_width
        self.taps = tap_blocks(config.encoder.depth, config.decoder_depth, config.taps)
        self.cls_token = nn.Parameter(torch.empty(width)) if config.encoder.class_token else None
        self.embed = linear(width, width)
        self.skips = nn.ModuleList(LongSkip(width, config.encoder.width) for _ in self.taps)
        initialise(self, zero_branches=config.encoder.zero_init, generator=generator)
        for skip in self.skips:
            assert isinstance(skip, LongSkip)
            nn.init.zeros_(skip.fc2.weight)
            nn.init.normal_(skip.mask_token, std=0.02, generator=generator)
        if self.cls_token is not None:
            nn.init.normal_(self.cls_token, std=0.02, generator=generator)
        if config.encoder.zero_init:
            nn.init.zeros_(self.to_pixels.weight)

    def forward(self, latent_BTD: Tensor, blocks: list[Tensor], order_BN: Tensor) -> Tensor:
        B, N = order_BN.shape
        # The start depends on the position alone: computed once for each, then laid out in every sample's order.
        first = [] if self.cls_token is None else [self.cls_token[None]]
        start = self.embed(torch.cat([*first, self.positions]))
        x_BTD = torch.cat([start[:-N].expand(B, -1, -1), F.embedding(order_BN, start[-N:])], dim=1)
        for index, block in enumerate(self.blocks):
            if index < len(self.taps):
                x_BTD = self.skips[index](x_BTD, blocks[self.taps[index]])
            x_BTD = block(x_BTD)
        return self.predict(x_BTD, hidden=x_BTD.shape[1] - latent_BTD.shape[1])


class PlainDecoder(_Decoder):
    """He et al. 2022: the last encoder output, mask tokens for hidden patches, and positions."""

    def __init__(self, config: MAEConfig, generator: torch.Generator | None) -> None:
        super().__init__(config)
        self.prefix = int(config.encoder.class_token)
        self.embed = linear(config.encoder.width, config.decoder_width)
        self.mask_token = nn.Parameter(torch.empty(config.decoder_width))
        initialise(self, zero_branches=config.encoder.zero_init, generator=generator)
        nn.init.normal_(self.mask_token, std=0.02, generator=generator)

    def forward(self, latent_BTD: Tensor, blocks: list[Tensor], order_BN: Tensor) -> Tensor:
        B, N = order_BN.shape
        visible = self.embed(latent_BTD)
        hidden = N + self.prefix - visible.shape[1]
        positions = F.pad(F.embedding(order_BN, self.positions), (0, 0, self.prefix, 0))  # the class token has none
        mask_tokens = self.mask_token.to(visible.dtype).expand(B, hidden, -1)
        x_BTD = torch.cat([visible, mask_tokens], dim=1) + positions
        for block in self.blocks:
            x_BTD = block(x_BTD)
        return self.predict(x_BTD, hidden)
