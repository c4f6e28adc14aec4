"""How are the inputs of a measure checked and read? Finite feature matrices, and one integer label per row.

Features may be a tensor or a numpy array, memory-mapped or not, in any floating type. They are read a few rows at a
time, so that a bank larger than memory can be measured.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from echoless.errors import ConfigError, DataError

Rows: TypeAlias = Tensor | np.ndarray
ROWS_AT_ONCE = 8192


def read_rows(features: Rows, start: int, stop: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Rows [start, stop) in memory; fewer where the features end."""
    part = features[start:stop]
    if isinstance(part, Tensor):
        return part.detach().to("cpu", dtype)
    # A copy, because torch refuses to promise that it will not write to a read-only memory map.
    return torch.from_numpy(np.array(part)).to(dtype)


def row_blocks(features: Rows, dtype: torch.dtype = torch.float32, size: int = ROWS_AT_ONCE) -> Iterator[Tensor]:
    """All rows, in order, in blocks aligned to multiples of `size`."""
    for start in range(0, len(features), size):
        yield read_rows(features, start, start + size, dtype)


def check_features(name: str, features: Rows, *, at_least: int = 1) -> None:
    """Refuses anything but a matrix of finite numbers with enough rows."""
    if features.ndim != 2 or features.shape[1] == 0:
        raise DataError(f"{name} has shape {tuple(features.shape)}; allowed: (samples, dimensions)")
    if len(features) < at_least:
        raise DataError(f"{name} has {len(features)} rows; allowed: {at_least} or more")
    for number, block in enumerate(row_blocks(features)):
        if not all(math.isfinite(extreme) for extreme in torch.aminmax(block)):
            row = number * ROWS_AT_ONCE + int((~torch.isfinite(block)).any(dim=1).nonzero()[0])
            raise DataError(f"{name} has a value that is not finite in row {row}; allowed: finite numbers only")


def check_same_width(name: str, features: Rows, other_name: str, other: Rows) -> None:
    if features.shape[1] != other.shape[1]:
        raise DataError(
            f"{name} has {features.shape[1]} dimensions and {other_name} has {other.shape[1]}; they must be equal"
        )


def as_labels(name: str, labels: Rows, rows: int) -> Tensor:
    """The labels as int64, one for each of `rows`."""
    labels_N = torch.as_tensor(labels).cpu()
    if labels_N.shape != (rows,):
        raise DataError(f"{name} has shape {tuple(labels_N.shape)}; allowed: ({rows},), one label per row")
    if labels_N.dtype.is_floating_point or labels_N.dtype.is_complex:
        raise DataError(f"{name} has type {labels_N.dtype}; allowed: whole numbers")
    return labels_N.long()


def check_count(name: str, value: object, *, at_least: int = 1) -> None:
    """Refuses a setting that is not a whole number, or is too small."""
    if not isinstance(value, int) or isinstance(value, bool) or value < at_least:
        raise ConfigError(f"{name} is {value!r}; allowed: a whole number, {at_least} or more")
