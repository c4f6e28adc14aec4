"""What is a U-ViT? Patches, time and label are tokens; long skips join its halves. (Legend: models/layers.py.)

Section 3 of arXiv:2209.12152, with shortcuts that fade from the first block in to the last block out.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from echoless.config import UViTConfig
from echoless.models.denoiser import Denoiser, sinusoid
from echoless.models.layers import (
    BlockOptions,
    Note,
    build_blocks,
    ignore,
    linear,
    patchify,
    silence_branches,
    uninitialised,
    unpatchify,
)


class UViT(Denoiser):
    """Tokens are [label, where there are classes], time, patches."""

    config: UViTConfig

    def __init__(self, config: UViTConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        width, patches = config.width, math.prod(config.grid)
        self.patch_embed = linear(config.patch_values, width)
        self.positions = nn.Parameter(torch.empty(config.extra_tokens + patches, width))
        self.blocks = build_blocks(
            width=width,
            depth=config.blocks,
            heads=config.heads,
            mlp_ratio=config.mlp_ratio,
            norm_eps=config.norm_eps,
            shortcuts=config.shortcuts,
            options=BlockOptions(qkv_bias=False),
        )
        self.skips = nn.ModuleList(linear(2 * width, width) for _ in range(config.depth // 2))
        self.norm = nn.LayerNorm(width, eps=config.norm_eps)
        self.to_pixels = linear(width, config.patch_values)
        self.conv = _conv3x3(config.channels) if config.conv else nn.Identity()
        self._initialise(generator)

    def forward(
        self, images_BCHW: Tensor, time_B: Tensor, labels_B: Tensor | None = None, note: Note = ignore
    ) -> Tensor:
        self.check(images_BCHW, time_B, labels_B)
        x_BTD = self.embed(images_BCHW, time_B, labels_B)
        note("embed", x_BTD)
        x_BTD = self.norm(self._through_blocks(x_BTD, note))
        note("norm", x_BTD)
        patches_BNP = self.to_pixels(x_BTD[:, self.config.extra_tokens :])
        return self.conv(unpatchify(patches_BNP, self.config.patch_size, self.config.grid))

    def embed(self, images_BCHW: Tensor, time_B: Tensor, labels_B: Tensor | None) -> Tensor:
        patches = self.patch_embed(patchify(images_BCHW, self.config.patch_size))
        tokens = [sinusoid(time_B, self.config.width).to(patches.dtype)[:, None], patches]
        if self.label_table is not None:
            tokens.insert(0, self.embed_labels(labels_B, len(patches)).to(patches.dtype)[:, None])
        return torch.cat(tokens, dim=1) + self.positions

    def _through_blocks(self, x_BTD: Tensor, note: Note) -> Tensor:
        middle = self.config.depth // 2
        waiting: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            name = f"block{index:02d}"
            if index > middle:
                x_BTD = self.skips[index - middle - 1](torch.cat([x_BTD, waiting.pop()], dim=-1))
                note(f"{name}/+skip", x_BTD)
            x_BTD = block(x_BTD, note, name)
            if index < middle:
                waiting.append(x_BTD)
        return x_BTD

    def _initialise(self, generator: torch.Generator | None) -> None:
        """As published: truncated normals of 0.02, torch's own start for the two convolutions and for the labels."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02, generator=generator)
                if layer.bias is not None:
                    nn.init.zeros_(layer.bias)
        nn.init.trunc_normal_(self.positions, std=0.02, generator=generator)
        for layer in (self.patch_embed, self.conv):  # the embedding of patches is a convolution with stride = kernel
            if isinstance(layer, nn.Linear | nn.Conv2d):
                bound = 1 / math.sqrt(math.prod(layer.weight.shape[1:]))
                for parameter in layer.parameters():
                    nn.init.uniform_(parameter, -bound, bound, generator=generator)
        if self.label_table is not None:
            nn.init.normal_(self.label_table, generator=generator)
        if self.config.zero_init and self.config.shortcuts.carry:
            silence_branches(self)


def _conv3x3(channels: int) -> nn.Conv2d:
    return uninitialised(nn.Conv2d, channels, channels, 3, padding=1)
