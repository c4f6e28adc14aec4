"""Which samples does step N see?

A pure function of (seed, step): nothing is saved, and the answer is the same for any number of workers and processes.
The permutation of an epoch covers every sample, and the excluded ones are taken out of it afterwards: one more bad file
moves its neighbours up, and never reshuffles them. Epochs follow each other without dropping a tail, so a batch may
straddle two of them and `step * batch_size` is the whole state.
"""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor

from echoless.errors import ConfigError, DataError
from echoless.randomness import generator_for

NOTHING_EXCLUDED: frozenset[int] = frozenset()


def epoch_order(seed: int, epoch: int, count: int, excluded: frozenset[int] = NOTHING_EXCLUDED) -> Tensor:
    """The ids 0..count-1 without the excluded ones, in the order of this epoch."""
    return _epoch_order(seed, epoch, count, excluded).clone()


# Two epochs meet in a batch; workers that run ahead may touch a third.
@lru_cache(maxsize=4)
def _epoch_order(seed: int, epoch: int, count: int, excluded: frozenset[int]) -> Tensor:
    order = torch.randperm(count, generator=generator_for(seed, "order", epoch))
    if not excluded:
        return order
    keep = torch.ones(count, dtype=torch.bool)
    keep[torch.tensor(sorted(excluded))] = False
    return order[keep[order]]


def batch_indices(
    seed: int, step: int, batch_size: int, count: int, excluded: frozenset[int] = NOTHING_EXCLUDED
) -> Tensor:
    """The ids of the global batch of this step, in order."""
    per_epoch = count - len(excluded)
    if per_epoch < 1:
        raise DataError(f"none of the {count} images can be used: {len(excluded)} are unreadable")
    pieces, position, missing = [], step * batch_size, batch_size
    while missing:
        epoch, offset = divmod(position, per_epoch)
        piece = _epoch_order(seed, epoch, count, excluded)[offset : offset + missing]
        pieces.append(piece)
        position, missing = position + len(piece), missing - len(piece)
    return torch.cat(pieces)


def rank_slice(batch_size: int, rank: int, world: int) -> slice:
    """The part of the global batch that one process computes: contiguous, so that ranks in order give the batch."""
    if not 0 <= rank < world:
        raise ConfigError(f"rank is {rank}; allowed: 0 to {world - 1} for a world of {world}")
    return slice(rank * batch_size // world, (rank + 1) * batch_size // world)
