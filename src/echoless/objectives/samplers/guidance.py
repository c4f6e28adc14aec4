"""How are samples guided towards their class? Classifier-free guidance."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import torch
from torch import Tensor

from echoless.config.checks import require_one_of
from echoless.config.options.sample import GuidanceChannels
from echoless.objectives.predictions import Field, expand_time, field_of


# Eq. (6) of arXiv:2207.12598, with scale = 1 + w.
def guided(
    model: Callable[[Tensor, Tensor, Tensor | None], Tensor],
    network_time: Callable[[Tensor], Tensor],
    labels_B: Tensor,
    no_label: int,
    scale: float,
    channels: GuidanceChannels = "all",
) -> Field:
    """without + scale * (with - without), both from one call on a batch of twice the size.

    Scale 1 is the conditional model, at the cost of one call. U-ViT's scale is smaller by 1: its 0.4 is 1.4 here.
    channels="first-three": as in the published SiT code; other channels use the conditional prediction.
    """
    require_one_of("channels", channels, get_args(GuidanceChannels))
    if scale == 1.0:
        return field_of(model, network_time, labels_B)
    both_labels = torch.cat([labels_B, torch.full_like(labels_B, no_label)])

    def field(x: Tensor, t: Tensor) -> Tensor:
        time_B = expand_time(network_time(t), x)
        given, without = model(torch.cat([x, x]), torch.cat([time_B, time_B]), both_labels).chunk(2)
        mixed = without + scale * (given - without)
        return mixed if channels == "all" else torch.cat([mixed[:, :3], given[:, 3:]], dim=1)

    return field
