"""How are right and wrong answers kept beside an accuracy? As bits in text: two runs are compared image by image."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import numpy as np
import torch
from torch import Tensor

MOST = 100_000  # images: 17 kB of text


def pack(correct_N: Tensor) -> str:
    """One bit per image, in base64; nothing for too many of them."""
    if len(correct_N) > MOST:
        return ""
    return base64.b64encode(np.packbits(correct_N.numpy().astype(bool)).tobytes()).decode()


def kept(correct_N: Tensor, groups_N: Tensor | None = None) -> dict[str, Any]:
    """The fields `right` and `groups` of a metric.

    Where samples belong together, the answers are in the order of their groups, the smallest first; and `groups` is
    [[how many, of which size], ...]. The same groups have the same order, whatever the answers.
    """
    if groups_N is None:
        return {"right": pack(correct_N)}
    group_N, sizes_G = groups_N.unique(return_inverse=True, return_counts=True)[1:]
    order_N = group_N.argsort(stable=True)
    order_N = order_N[sizes_G[group_N[order_N]].argsort(stable=True)]
    sizes, counts = sizes_G.unique(return_counts=True)
    return {"right": pack(correct_N[order_N]), "groups": torch.stack([counts, sizes], dim=1).tolist()}


def unpack_groups(groups: object, n: int) -> Tensor | None:
    """The group of each of the n answers; None where this is not what `kept` says of as many."""
    try:
        counts, sizes = torch.tensor(groups, dtype=torch.int64).reshape(-1, 2).T
    except (TypeError, ValueError, RuntimeError):
        return None
    if not bool((counts > 0).all() and (sizes > 0).all()) or float((counts.double() * sizes).sum()) != n:
        return None
    return torch.arange(int(counts.sum())).repeat_interleave(sizes.repeat_interleave(counts))


def unpack(text: object, n: int) -> Tensor | None:
    """The n answers, (N,), bool; None where the text is not what `pack` writes for as many."""
    if not isinstance(text, str) or not 0 < n <= MOST:
        return None
    try:
        bits = np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
    except (binascii.Error, ValueError):
        return None
    return torch.from_numpy(np.unpackbits(bits, count=n).astype(bool)) if len(bits) == -(-n // 8) else None
