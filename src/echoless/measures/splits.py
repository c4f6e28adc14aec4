"""How are cross-validation folds made? Stratified by class."""

from __future__ import annotations

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.measures.inputs import Rows, as_labels, check_count


def stratified_folds(labels_N: Rows, folds: int, *, generator: torch.Generator) -> Tensor:
    """The fold (0 .. folds - 1) of every sample; within a class, and over all, fold sizes differ by at most one."""
    check_count("folds", folds, at_least=2)
    labels_N = as_labels("labels", labels_N, len(labels_N))
    if folds > len(labels_N):
        raise ConfigError(f"folds is {folds}; allowed: at most {len(labels_N)}, the number of samples")
    shuffled = torch.randperm(len(labels_N), generator=generator)
    by_class = shuffled[labels_N[shuffled].argsort(stable=True)]
    fold_N = torch.empty(len(labels_N), dtype=torch.int64)
    # Dealt like cards, one class after the other.
    fold_N[by_class] = torch.arange(len(labels_N)) % folds
    return fold_N
