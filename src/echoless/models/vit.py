"""How does an image become features? A pre-norm ViT whose shortcuts fade with depth. (Legend: models/layers.py.)"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config import ShortcutConfig, ViTConfig
from echoless.models.body import Backbone
from echoless.models.features import Features
from echoless.models.layers import (
    Block,
    BlockOptions,
    Note,
    build_blocks,
    ignore,
    initialise,
    linear,
    patchify,
    resample_positions,
    sincos_positions,
    take_rows,
)
from echoless.models.places import NOWHERE, Places, distances_of, rotation_of
from echoless.shortcuts import PreNormBranch, Shortcut, evaluating


class ViT(Backbone):
    """A class token and patches through pre-norm blocks: x <- alpha_l * x + f_l(x)."""

    positions: Tensor | None

    def __init__(self, config: ViTConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.patch_embed = linear(config.patch_values, config.width)
        self.cls_token = nn.Parameter(torch.empty(config.width)) if config.class_token else None
        self.registers = nn.Parameter(torch.empty(config.registers, config.width)) if config.registers else None
        # Fixed, yet part of the state: imported encoders bring tables of their own, and folding rescales them.
        if config.positions == "learned":  # starts as the fixed one
            self.positions = nn.Parameter(sincos_positions(config.grid, config.width))
        else:
            fixed = sincos_positions(config.grid, config.width) if config.positions == "sincos" else None
            self.register_buffer("positions", fixed)
        self.blocks = build_blocks(
            width=config.width,
            depth=config.depth,
            heads=config.heads,
            mlp_ratio=config.mlp_ratio,
            norm_eps=config.norm_eps,
            shortcuts=config.shortcuts,
            options=_block_options(config),
        )
        self.norm = nn.LayerNorm(config.width, eps=config.norm_eps) if config.final_norm else nn.Identity()
        initialise(self, zero_branches=config.zero_init and config.shortcuts.carry, generator=generator)
        for tokens in (self.cls_token, self.registers):
            if tokens is not None:
                nn.init.normal_(tokens, std=0.02, generator=generator)

    def embed(self, images_BCHW: Tensor, keep_BK: Tensor | None = None) -> Tensor:
        """Class token, registers and embedded patches; only those in `keep`, in that order, where it is given."""
        patches = patchify(images_BCHW, self.config.patch_size)
        if keep_BK is not None:
            patches = take_rows(patches, keep_BK)
        tokens = self.patch_embed(patches)
        if self.positions is not None:
            smooth = self.config.antialias_positions
            positions = resample_positions(
                self.positions, self.config.grid, self.grid_of(images_BCHW), antialias=smooth
            )
            tokens = tokens + (positions if keep_BK is None else F.embedding(keep_BK, positions))
        first = [] if self.cls_token is None else [self.cls_token[None]]
        first += [] if self.registers is None else [self.registers]
        return torch.cat([*(part.to(tokens.dtype).expand(tokens.shape[0], -1, -1) for part in first), tokens], dim=1)

    def places(self, images_BCHW: Tensor, keep_BK: Tensor | None = None) -> Places:
        """Where the tokens are, for positions that are not added to them."""
        config, grid, device = self.config, self.grid_of(images_BCHW), images_BCHW.device
        if config.positions == "rotary":
            head = config.width // config.heads
            return Places(rotation=rotation_of(grid, head, config.rope_theta, config.extra_tokens, keep_BK, device))
        if config.positions == "relative":
            return Places(distances=distances_of(grid, keep_BK, device))
        return NOWHERE

    def grid_of(self, images_BCHW: Tensor) -> tuple[int, int]:
        """Rows and columns of patches."""
        H, W = images_BCHW.shape[-2:]
        return H // self.config.patch_size, W // self.config.patch_size

    def forward(
        self,
        images_BCHW: Tensor,
        keep_BK: Tensor | None = None,
        note: Note = ignore,
        drop_path_BS: Tensor | None = None,
    ) -> Tensor:
        """Tokens (B, T, D) of the last block, normalised where the config asks for a final norm."""
        self.check_images(images_BCHW)
        x_BTD, places = self.embed(images_BCHW, keep_BK), self.places(images_BCHW, keep_BK)
        note("embed", x_BTD)
        for index, block in enumerate(self.blocks):
            factors_B2 = None if drop_path_BS is None else drop_path_BS[:, 2 * index : 2 * index + 2]
            x_BTD = block(x_BTD, note, f"block{index:02d}", factors_B2, places)
        if self.config.final_norm:
            x_BTD = self.norm(x_BTD)
            note("norm", x_BTD)
        return x_BTD

    @torch.no_grad()
    def features(self, images_BCHW: Tensor, only: Collection[str] | None = None) -> Features:
        """Every named intermediate, or those in `only`. Nothing is masked and nothing is random, in any mode."""
        features = Features(only, self.config.extra_tokens, class_token=self.config.has_class_token)
        with evaluating(self):
            self(images_BCHW, note=features.note)
        return features

    def head_norm(self) -> nn.Module:
        """The norm between the pooled feature and a linear head."""
        return nn.LayerNorm(self.config.width, eps=self.config.norm_eps)

    @property
    def shortcuts(self) -> list[Shortcut]:
        return [branch.shortcut for branch in self.branches()]

    # What shortcuts/fold.py needs to know of a network.

    def name_plain_shortcuts(self) -> None:
        """Called after folding: sets the config to plain shortcuts."""
        self.config = replace(self.config, shortcuts=ShortcutConfig(variant="identity", alpha_min=1.0))

    def embeddings(self) -> list[Tensor]:
        """The embeddings that form the first value of the stream."""
        parts = (self.patch_embed.weight, self.patch_embed.bias, self.cls_token, self.registers, self.positions)
        return [part for part in parts if part is not None]

    def branches(self) -> list[PreNormBranch]:
        """The 2 * depth branches in the order of the stream."""
        branches = []
        for block in self.blocks:
            assert isinstance(block, Block)
            branches.append(PreNormBranch(block.norm1, block.attn.proj, block, "attn_shortcut"))
            branches.append(PreNormBranch(block.norm2, block.mlp.fc2, block, "mlp_shortcut"))
        return branches


def _block_options(config: ViTConfig) -> BlockOptions:
    return BlockOptions(
        layer_scale=config.layer_scale,
        gated_mlp=config.gated_mlp,
        activation=config.activation,
        relative_grid=config.grid if config.positions == "relative" else None,
    )
