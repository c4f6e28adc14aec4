"""What do U-ViT and SiT share? Embeddings of time and label, and named features. (Legend: layers.py.)"""

from __future__ import annotations

import math
from collections.abc import Collection

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config import SiTConfig, UViTConfig
from echoless.config.diffusion import TimeWaves
from echoless.models.body import Backbone
from echoless.models.features import Features
from echoless.models.layers import Note, ignore
from echoless.shortcuts import Shortcut, evaluating


# Section 3.5 of arXiv:1706.03762, with all cosines before all sines.
def sinusoid(time_B: Tensor, width: int, waves: TimeWaves = "published") -> Tensor:
    """Cosines and sines (B, width) of a time, at frequencies from 1 down to almost, or exactly, 1 / 10000."""
    half = width // 2
    intervals = half if waves == "published" else half - 1
    steps = torch.arange(half, dtype=torch.float32, device=time_B.device)
    angles = time_B.float()[:, None] * torch.exp(-math.log(10_000) * steps / intervals)
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class Denoiser(Backbone):
    """`model(images, time, labels)` gives one image per image: the noise, velocity or score that was trained for.

    The time is what the network was trained with (the objective's `network_time`). The last row of the label table
    is the null label of classifier-free guidance; it is used where labels are None.
    """

    config: UViTConfig | SiTConfig
    blocks: nn.ModuleList
    label_table: nn.Parameter | None

    def __init__(self, config: UViTConfig | SiTConfig) -> None:
        super().__init__()
        self.config = config
        rows = None if config.classes is None else config.classes + 1
        self.label_table = None if rows is None else nn.Parameter(torch.empty(rows, config.width))

    def forward(
        self, images_BCHW: Tensor, time_B: Tensor, labels_B: Tensor | None = None, note: Note = ignore
    ) -> Tensor:
        raise NotImplementedError

    @torch.no_grad()
    def features(
        self,
        images_BCHW: Tensor,
        time_B: Tensor,
        labels_B: Tensor | None = None,
        only: Collection[str] | None = None,
    ) -> Features:
        """Every named intermediate, or those in `only`; blocks are counted from the first to the last."""
        features = Features(only, self.config.extra_tokens, class_token=self.config.has_class_token)
        with evaluating(self):
            self(images_BCHW, time_B, labels_B, note=features.note)
        return features

    def embed_labels(self, labels_B: Tensor | None, batch: int) -> Tensor:
        """One row of the table for each sample."""
        assert self.label_table is not None
        if labels_B is None:
            return self.label_table[-1].expand(batch, -1)
        return F.embedding(labels_B, self.label_table)

    def check(self, images_BCHW: Tensor, time_B: Tensor, labels_B: Tensor | None) -> None:
        wanted = (self.config.channels, *self.config.image_size)
        if images_BCHW.ndim != 4 or images_BCHW.shape[1:] != wanted:
            raise ValueError(f"images have the shape {tuple(images_BCHW.shape)}; allowed: (batch, *{wanted})")
        if time_B.shape != images_BCHW.shape[:1]:
            raise ValueError(f"time has the shape {tuple(time_B.shape)}; allowed: {tuple(images_BCHW.shape[:1])}")
        if labels_B is not None and self.config.classes is None:
            raise ValueError("labels were given to a model without classes; pass labels_B=None")

    @property
    def shortcuts(self) -> list[Shortcut]:
        joins = [getattr(block, f"{kind}_shortcut") for block in self.blocks for kind in ("attn", "mlp")]
        assert all(isinstance(join, Shortcut) for join in joins)
        return joins
