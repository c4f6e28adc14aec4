"""Which branches are dropped in a step? Stochastic depth (arXiv:1603.09382) with a rate that rises with depth."""

from __future__ import annotations

import torch
from torch import Tensor


def drop_path_factors(uniform_BS: Tensor, rate: float) -> Tensor | None:
    """For S branches, two per block: 0 where dropped, else 1 / (1 - the block's rate). None at rate 0.

    The rate of a block rises linearly from 0 at the first to `rate` at the last.
    """
    if rate == 0:
        return None
    branches = uniform_BS.shape[1]
    blocks = torch.arange(branches, device=uniform_BS.device) // 2
    rates = rate * blocks / max(branches // 2 - 1, 1)
    return (uniform_BS >= rates) / (1 - rates)
