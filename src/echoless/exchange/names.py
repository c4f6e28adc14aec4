"""How is a tensor found under another library's name, and how does a patch convolution become a linear and back?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from torch import Tensor

from echoless.errors import UntrustedFile


class Taken:
    """Looks tensors up and remembers which, so that nothing is left over unnoticed. `what` the state should be."""

    def __init__(self, state: Mapping[str, Tensor], what: str) -> None:
        self.state, self.what, self.names = state, what, set[str]()

    def __call__(self, name: str) -> Tensor:
        if name not in self.state:
            raise UntrustedFile(f"the weights lack {name!r}; they must be {self.what}")
        self.names.add(name)
        return self.state[name]

    def pair(self, theirs: str, ours: str) -> dict[str, Tensor]:
        """The weight and the bias of one layer, under our name."""
        return {f"{ours}.{kind}": self(f"{theirs}.{kind}") for kind in ("weight", "bias")}

    def drop(self, prefix: str) -> bool:
        """Pass over what we have no use for; returns whether there was any."""
        dropped = {name for name in self.state if name.startswith(prefix)}
        self.names |= dropped
        return bool(dropped)

    def refuse_the_rest(self) -> None:
        if rest := sorted(set(self.state) - self.names):
            raise UntrustedFile(f"the weights have an unexpected {rest[0]!r}; they must be {self.what}")


def count_blocks(state: Mapping[str, Tensor], prefix: str) -> int:
    """How many different N there are in `prefix.N.`"""
    pattern = re.compile(re.escape(prefix) + r"\.(\d+)\.")
    return len({match[1] for name in state if (match := pattern.match(name))})


def conv_to_linear(weight_DCpp: Tensor) -> Tensor:
    """A convolution with stride = kernel is a linear on patches, whose values here run over rows, columns, channels."""
    if weight_DCpp.ndim != 4:
        raise UntrustedFile(f"the patch convolution has the shape {tuple(weight_DCpp.shape)}; allowed: (D, C, p, p)")
    return weight_DCpp.permute(0, 2, 3, 1).flatten(1)


def linear_to_conv(weight_DP: Tensor, patch: int) -> Tensor:
    """The inverse of `conv_to_linear`."""
    return weight_DP.unflatten(1, (patch, patch, -1)).permute(0, 3, 1, 2)
