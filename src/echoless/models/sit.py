"""What is a SiT? A transformer whose blocks are modulated by time and class (adaLN-Zero). (Legend: models/layers.py.)

The network of arXiv:2401.08740, which is that of arXiv:2212.09748, with shortcuts that fade from the first block to the
last and, as an option, long skips between its halves, as in arXiv:2404.10947.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config import SiTConfig
from echoless.models.denoiser import Denoiser, sinusoid
from echoless.models.layers import (
    MLP,
    Attention,
    Note,
    build_shortcuts,
    ignore,
    initialise,
    linear,
    patchify,
    sincos_positions,
    unpatchify,
)
from echoless.shortcuts import Shortcut, residual

TIME_WAVES = 256  # width of the sinusoid of a time


def modulate(x_BTD: Tensor, shift_B1D: Tensor, scale_B1D: Tensor) -> Tensor:
    """x * (1 + scale) + shift, in one kernel."""
    return torch.addcmul(shift_B1D, x_BTD, 1 + scale_B1D)


# Section 3.2 of arXiv:2212.09748, "adaLN-Zero block".
class ModulatedBlock(nn.Module):
    """A pre-norm block with norms and branches modulated by the condition; its gates start at zero."""

    def __init__(self, config: SiTConfig, shortcuts: tuple[Shortcut, Shortcut]) -> None:
        super().__init__()
        width = config.width
        self.norm = nn.LayerNorm(width, eps=config.norm_eps, elementwise_affine=False)  # has no weights: one for both
        self.attn = Attention(width, config.heads)
        self.attn_shortcut = shortcuts[0]
        self.mlp = MLP(width, int(width * config.mlp_ratio), activation="gelu_tanh")
        self.mlp_shortcut = shortcuts[1]
        self.modulation = linear(width, 6 * width)

    def forward(self, x_BTD: Tensor, condition_BD: Tensor, note: Note = ignore, name: str = "block") -> Tensor:
        shift1, scale1, gate1, shift2, scale2, gate2 = self.modulation(condition_BD)[:, None].chunk(6, dim=-1)
        branch = gate1 * self.attn(modulate(self.norm(x_BTD), shift1, scale1))
        note(f"{name}/attn", branch)
        x_BTD = self.attn_shortcut(x_BTD, branch)
        note(f"{name}/+attn", x_BTD)
        branch = gate2 * self.mlp(modulate(self.norm(x_BTD), shift2, scale2))
        note(f"{name}/mlp", branch)
        x_BTD = self.mlp_shortcut(x_BTD, branch)
        note(f"{name}/+mlp", x_BTD)
        return x_BTD


class SiT(Denoiser):
    """Tokens are the patches; time and label enter through the modulation alone."""

    config: SiTConfig
    positions: Tensor

    def __init__(self, config: SiTConfig, generator: torch.Generator | None = None) -> None:
        super().__init__(config)
        width = config.width
        self.patch_embed = linear(config.patch_values, width)
        self.register_buffer("positions", sincos_positions(config.grid, width))
        self.time_embed = nn.Sequential(linear(TIME_WAVES, width), nn.SiLU(), linear(width, width))
        pairs = build_shortcuts(config.depth, config.shortcuts)
        self.blocks = nn.ModuleList(ModulatedBlock(config, pair) for pair in pairs)
        skips = config.depth // 2 if config.long_skips else 0
        self.skips = nn.ModuleList(linear(width, width) for _ in range(skips))
        self.norm = nn.LayerNorm(width, eps=config.norm_eps, elementwise_affine=False)
        self.modulation = linear(width, 2 * width)
        self.to_pixels = linear(width, config.patch_values * (2 if config.learn_sigma else 1))
        self._initialise(generator)

    def forward(
        self, images_BCHW: Tensor, time_B: Tensor, labels_B: Tensor | None = None, note: Note = ignore
    ) -> Tensor:
        self.check(images_BCHW, time_B, labels_B)
        condition_BD = self.condition(time_B, labels_B)
        x_BTD = self.patch_embed(patchify(images_BCHW, self.config.patch_size)) + self.positions
        note("embed", x_BTD)
        x_BTD = self._through_blocks(x_BTD, condition_BD, note)
        shift, scale = self.modulation(condition_BD)[:, None].chunk(2, dim=-1)
        x_BTD = modulate(self.norm(x_BTD), shift, scale)
        note("norm", x_BTD)
        images = unpatchify(self.to_pixels(x_BTD), self.config.patch_size, self.config.grid)
        return images[:, : self.config.channels]  # the second half, where there is one, was for a variance

    def condition(self, time_B: Tensor, labels_B: Tensor | None) -> Tensor:
        """What the modulations read (B, D): SiLU(time + label)."""
        waves = sinusoid(time_B, TIME_WAVES, self.config.time_waves)
        condition = self.time_embed(waves.to(self.modulation.weight.dtype))
        if self.label_table is not None:
            condition = condition + self.embed_labels(labels_B, len(time_B))
        return F.silu(condition)

    def _through_blocks(self, x_BTD: Tensor, condition_BD: Tensor, note: Note) -> Tensor:
        first_out = len(self.blocks) - len(self.skips)
        waiting: list[Tensor] = []
        for index, block in enumerate(self.blocks):
            name = f"block{index:02d}"
            if index >= first_out:
                x_BTD = residual(x_BTD, self.skips[index - first_out](waiting.pop()))
                note(f"{name}/+skip", x_BTD)
            x_BTD = block(x_BTD, condition_BD, note, name)
            if self.skips and index < first_out:
                waiting.append(x_BTD)
        return x_BTD

    def _initialise(self, generator: torch.Generator | None) -> None:
        """As published: Xavier, normals of 0.02 for time and labels, zero for all modulations and for the output."""
        initialise(self, zero_branches=False, generator=generator)
        for layer in self.time_embed:
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight, std=0.02, generator=generator)
        if self.label_table is not None:
            nn.init.normal_(self.label_table, std=0.02, generator=generator)
        modulations = [block.modulation for block in self.blocks if isinstance(block, ModulatedBlock)]
        for layer in (*modulations, self.modulation, self.to_pixels):
            nn.init.zeros_(layer.weight)
        if not self.config.shortcuts.carry:  # a closed gate would be the end of the stream: each starts at 1
            for layer in modulations:
                for gate in (2, 5):
                    nn.init.ones_(layer.bias.detach().chunk(6)[gate])
