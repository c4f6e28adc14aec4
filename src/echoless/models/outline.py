"""Which shapes have the weights of a config? Those of a network without memory: no file may ask for gigabytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from echoless.models.registry import build

DRAWS = (Tensor.normal_, Tensor.uniform_, nn.init.normal_)


class _NothingDrawn(TorchFunctionMode):
    """On `meta` torch draws in Python, and the first draw imports its compiler: seconds, for values that nobody has."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return None if func in DRAWS else func(*args, **(kwargs or {}))


def outline(config: Any) -> Any:
    """The network of a config, for its names and shapes, or to be filled by `load_state_dict(assign=True)`."""
    with torch.device("meta"), _NothingDrawn():
        return build(config)
