"""How are cross-validation folds made? Stratified by class; what belongs together stays in one fold."""

from __future__ import annotations

import torch
from torch import Tensor

from echoless.errors import ConfigError
from echoless.measures.inputs import Rows, as_labels, check_count


def stratified_folds(
    labels_N: Rows, folds: int, *, generator: torch.Generator, groups_N: Tensor | None = None
) -> Tensor:
    """The fold (0 .. folds - 1) of every sample; within a class, and over all, fold sizes differ by at most one.

    groups_N: samples of one group share a fold. Those that stand alone stay where they are without groups, so that one
    copy of an image moves no other; the others go from the largest group to the smallest, each to the fold that has
    least of its class: sizes differ by at most that of the largest group of a class.
    """
    check_count("folds", folds, at_least=2)
    labels_N = as_labels("labels", labels_N, len(labels_N))
    group_N = torch.arange(len(labels_N)) if groups_N is None else numbered("groups", groups_N, len(labels_N))
    sizes_G = group_N.bincount()
    if folds > len(sizes_G):
        what = "samples" if groups_N is None else "groups"
        raise ConfigError(f"folds is {folds}; allowed: at most {len(sizes_G)}, the number of {what}")
    shuffled = torch.randperm(len(labels_N), generator=generator)
    by_class = shuffled[labels_N[shuffled].argsort(stable=True)]
    dealt_N = torch.empty(len(labels_N), dtype=torch.int64)
    # Dealt like cards, one class after the other.
    dealt_N[by_class] = torch.arange(len(labels_N)) % folds
    if len(sizes_G) == len(labels_N):
        return dealt_N
    drawn = labels_N[shuffled], group_N[shuffled], dealt_N[shuffled], sizes_G, folds
    fold_G = _whole_groups(*drawn, stay=True)
    # Of a handful of groups, those that stay may leave a fold without any: then none stays.
    return (fold_G if len(fold_G.unique()) == folds else _whole_groups(*drawn, stay=False))[group_N]


def _whole_groups(
    labels_N: Tensor, group_N: Tensor, dealt_N: Tensor, sizes_G: Tensor, folds: int, *, stay: bool
) -> Tensor:
    """The fold of every group, from samples in random order; the class of a group is that of its first sample.

    stay: a sample that stands alone stays in the fold that it was dealt to, and counts before the others are put there.
    """
    drawn = _first_of_each(group_N, len(sizes_G))
    rank_G = sizes_G[group_N[drawn]]
    if stay:
        rank_G = torch.where(rank_G == 1, len(labels_N), rank_G)
    drawn = drawn[rank_G.argsort(descending=True, stable=True)]
    order_G, class_G = group_N[drawn], labels_N[drawn].unique(return_inverse=True)[1].tolist()
    fold_G = torch.empty_like(sizes_G)
    of_class, in_all = [[0] * folds for _ in range(max(class_G) + 1)], [0] * folds
    chosen = []
    for number, size, dealt in zip(class_G, sizes_G[order_G].tolist(), dealt_N[drawn].tolist()):
        held = of_class[number]
        fold = dealt if stay and size == 1 else min(range(folds), key=lambda each: (held[each], in_all[each]))
        held[fold] += size
        in_all[fold] += size
        chosen.append(fold)
    fold_G[order_G] = torch.tensor(chosen)
    return fold_G


def numbered(name: str, groups_N: Rows, rows: int) -> Tensor:
    """The groups as numbers from 0, one for each of `rows`."""
    return as_labels(name, groups_N, rows).unique(return_inverse=True)[1]


def groups_per_class(labels_N: Tensor, groups_N: Tensor | None = None) -> Tensor:
    """How many groups have a sample of each class that occurs; how many samples, where each stands alone."""
    if groups_N is None:
        return labels_N.unique(return_counts=True)[1]
    class_N, group_N = (numbered("labels", each, len(labels_N)) for each in (labels_N, groups_N))
    groups = int(group_N.max()) + 1
    return (class_N * groups + group_N).unique().div(groups, rounding_mode="floor").bincount()


def _first_of_each(group_N: Tensor, groups: int) -> Tensor:
    """The place of the first sample of each group, in order."""
    place_N = torch.arange(len(group_N))
    first_G = torch.full((groups,), len(group_N)).scatter_reduce(0, group_N, place_N, "amin")
    return first_G.sort().values
