"""Which tensor is the feature? Every intermediate has a name, and the pooling is chosen explicitly.

Names, in the order of the stream: `embed`, then for block 03 `block03/attn` (the branch), `block03/+attn` (the stream
after it), `block03/mlp`, `block03/+mlp`, and `norm` where the model ends in one; `block09/+skip` is the stream
after a long skip came in. Token 0 is the class token where there is one. `block03/key`, the keys of its attention over
all heads, is recorded only where it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, get_args

from torch import Tensor

from echoless.config.checks import nearest
from echoless.errors import ConfigError

Pooling = Literal["mean", "cls", "patch_mean"]
POOLINGS: tuple[str, ...] = get_args(Pooling)
_SHOWN = 5  # names, where one of them is wrong


def pool(tokens_BTD: Tensor, how: str = "mean", *, extra_tokens: int = 1, class_token: bool = True) -> Tensor:
    """One vector per image (B, D): the mean over all tokens, the class token, or the mean over the patches.

    extra_tokens: how many precede the patches; class_token: whether the first of them is a class token.
    """
    if how == "mean":
        return tokens_BTD.mean(dim=1)
    if how == "cls" and class_token:
        return tokens_BTD[:, 0]
    if how == "patch_mean":
        return tokens_BTD[:, extra_tokens:].mean(dim=1)
    if how == "cls":
        raise ConfigError("pooling is 'cls', but this encoder has no class token; allowed: mean, patch_mean")
    raise ConfigError(f"pooling is {how!r}; allowed: {', '.join(POOLINGS)}")


def not_a_feature(name: str, names: Iterable[str]) -> KeyError:
    """With the first names, which show their form, and the nearest."""
    known = list(names)
    shown = [*known[:_SHOWN], "..."] if len(known) > _SHOWN else known
    return KeyError(f"feature is {name!r}; allowed: {', '.join(shown)}{nearest(name, known)}")


class NamedTokens(dict[str, Tensor]):
    """Intermediates by name; one that is not there is answered with those that are."""

    def __missing__(self, name: str) -> Tensor:
        raise not_a_feature(name, self)


class Features(Mapping[str, Tensor]):
    """An ordered mapping from the name of an intermediate to its tokens (B, T, D)."""

    def __init__(self, only: Collection[str] | None = None, extra_tokens: int = 1, *, class_token: bool = True) -> None:
        self._only = only
        self._extra_tokens = extra_tokens  # those before the patches: a class token, or a label and a time
        self.has_class_token = class_token  # the first of them
        self._values: dict[str, Tensor] = {}

    def note(self, name: str, value: Tensor) -> None:
        """Record an intermediate that was asked for."""
        if not name.endswith("/key") if self._only is None else name in self._only:
            self._values[name] = value

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._values:
            raise not_a_feature(name, self._values)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    @property
    def block_outputs(self) -> list[str]:
        """The names of the stream after each block, in order."""
        return [name for name in self._values if name.endswith(("/+mlp", "/+conv"))]

    @property
    def last_block(self) -> str:
        """The name of the last block's output, before any norm: the frozen feature of the paper."""
        return self.block_outputs[-1]

    def pool(self, name: str | None = None, how: Pooling = "mean") -> Tensor:
        """One vector per image (B, D). The default is the paper's: the mean over all tokens of the last block."""
        tokens_BTD = self[name or self.last_block]
        return pool(tokens_BTD, how, extra_tokens=self._extra_tokens, class_token=self.has_class_token)
