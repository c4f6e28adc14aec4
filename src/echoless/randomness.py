"""Randomness is an argument: every draw comes from a generator that is a pure function of (seed, stream, step).

Nothing here has state between steps, so there is nothing to save, and a resumed run draws what the unbroken one drew.
"""

from __future__ import annotations

import hashlib
from typing import Literal, get_args

import torch

Stream = Literal[
    "order", "augment", "mask", "noise", "time", "dropout", "init", "synthetic", "sample", "probe", "latent", "subset"
]
STREAMS: tuple[str, ...] = get_args(Stream)


def generator_for(seed: int, stream: Stream, step: int) -> torch.Generator:
    """A CPU generator for one step of one stream; draw for the global batch and slice, never per rank or worker."""
    if stream not in STREAMS:
        raise ValueError(f"stream is {stream!r}; allowed: {', '.join(STREAMS)}")
    # BLAKE2b rather than hash(): the same on every machine and in every process.
    digest = hashlib.blake2b(f"{seed}/{stream}/{step}".encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)
