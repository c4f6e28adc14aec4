"""What are student and teacher in DINO (arXiv:2104.14294)? Encoders with heads; the teacher is an EMA of the student.

The teacher and the centre of its outputs are part of every checkpoint; `RUN/encoder` is the teacher's encoder.
(Legend: models/layers.py; K prototypes.)
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from echoless.config.selfsupervised import DINOConfig
from echoless.models.body import EncoderModel
from echoless.models.global_batch import total
from echoless.models.layers import linear
from echoless.models.momentum import follow, frozen_copy
from echoless.models.vit import ViT


# "Network architecture" in section 3.1 of arXiv:2104.14294.
class Head(nn.Module):
    """Three layers with GELU, a bottleneck at unit length, and its cosines with K prototypes at unit length."""

    def __init__(self, config: DINOConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.fc1 = linear(config.encoder.width, config.hidden)
        self.fc2 = linear(config.hidden, config.hidden)
        self.fc3 = linear(config.hidden, config.bottleneck)
        self.prototypes = nn.Parameter(torch.empty(config.prototypes, config.bottleneck))
        for layer in (self.fc1, self.fc2, self.fc3):
            nn.init.trunc_normal_(layer.weight, std=0.02, generator=generator)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(self.prototypes, std=config.bottleneck**-0.5, generator=generator)

    def forward(self, x_BD: Tensor) -> Tensor:
        hidden = F.gelu(self.fc2(F.gelu(self.fc1(x_BD))))
        return F.normalize(self.fc3(hidden), dim=-1) @ F.normalize(self.prototypes, dim=-1).T


class Branch(nn.Module):
    """Images to scores (B, K): the head reads the class token."""

    def __init__(self, config: DINOConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.encoder = ViT(config.encoder, generator)
        self.head = Head(config, generator)

    def forward(self, views: list[Tensor], drop_path: list[Tensor] | None = None) -> list[Tensor]:
        """The scores of each view; views of one size go through the encoder together.

        drop_path: for each view the factor of every branch (B, S).
        """
        sizes = list(dict.fromkeys(view.shape[-2:] for view in views))
        tokens: list[Tensor] = []
        for size in sizes:
            same = [index for index, view in enumerate(views) if view.shape[-2:] == size]
            factors_BS = None if drop_path is None else torch.cat([drop_path[index] for index in same])
            images_BCHW = torch.cat([views[index] for index in same])
            tokens += self.encoder(images_BCHW, drop_path_BS=factors_BS)[:, 0].chunk(len(same))
        return list(self.head(torch.cat(tokens)).chunk(len(views)))


class DINO(EncoderModel):
    """`dino.student(views)` and `dino.teacher(views)` give scores; `centre` is the moving mean of the teacher's."""

    centre: Tensor
    seen: Tensor

    def __init__(self, config: DINOConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        self.config = config
        self.student = Branch(config, generator)
        self.teacher: Branch = frozen_copy(self.student)
        self.register_buffer("centre", torch.zeros(config.prototypes))
        # The sum of the teacher's scores in this step, and their number: zero between steps.
        self.register_buffer("seen", torch.zeros(config.prototypes + 1), persistent=False)

    @torch.no_grad()
    def notice(self, scores: list[Tensor]) -> None:
        """Add the teacher's scores of a micro-batch to the sum that `move_centre` uses."""
        count = sum(len(part) for part in scores)
        self.seen[:-1] += torch.cat(scores).float().sum(dim=0)
        self.seen[-1] += count

    # Eq. (4), arXiv:2104.14294.
    @torch.no_grad()
    def move_centre(self, momentum: float) -> None:
        """EMA update of the centre with the mean score of this step, over all processes."""
        seen = total(self.seen)
        self.centre.lerp_(seen[:-1] / seen[-1].clamp(min=1), 1 - momentum)
        self.seen.zero_()

    def follow(self, momentum: float) -> None:
        """EMA update of the teacher."""
        follow(self.teacher, self.student, momentum)

    def share_encoder(self) -> None:
        follow(self.student.encoder, self.teacher.encoder, momentum=0.0)

    @property
    def encoder(self) -> ViT:  # type: ignore[override]  # an attribute in the other models
        return self.teacher.encoder
