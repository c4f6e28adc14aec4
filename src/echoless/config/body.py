"""What does every model have? A body: the part whose shortcuts are faded and that `RUN/encoder` holds. No torch.

A model config is a body itself (a U-ViT), or holds one in its field `encoder` (a masked autoencoder).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from echoless.config.model import ShortcutConfig


class Body(Protocol):
    """What the frame of a run asks of a body's config. `kind` names it in RUN/encoder/config.json."""

    @property
    def kind(self) -> str: ...
    @property
    def image_size(self) -> tuple[int, int]: ...
    @property
    def channels(self) -> int: ...
    @property
    def shortcuts(self) -> ShortcutConfig: ...
    @property
    def title(self) -> str:
        """Its sizes, for the person who watches."""
        ...

    @property
    def fades_over(self) -> Mapping[str, int]:
        """What the schedule counts, as `shortcuts.alphas` takes it: {"depth": blocks} or {"shortcuts": number}."""
        ...

    @property
    def multiplications(self) -> int:
        """Of one image on its way through, roughly: enough to tell minutes from hours."""
        ...


class TransformerBody:
    """What every body of patches and blocks derives from its own fields."""

    __slots__ = ()

    image_size: tuple[int, int]
    patch_size: int
    channels: int
    width: int
    depth: int

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size

    @property
    def patch_values(self) -> int:
        return self.channels * self.patch_size**2

    @property
    def blocks(self) -> int:
        """All that shortcuts fade over."""
        return self.depth

    @property
    def title(self) -> str:
        return self.sizes

    @property
    def sizes(self) -> str:
        size = " x ".join(map(str, self.image_size))
        return f"{self.width} x {self.blocks}, patch {self.patch_size} at {size}"

    @property
    def fades_over(self) -> dict[str, int]:
        return {"depth": self.blocks}

    @property
    def multiplications(self) -> int:
        return 12 * self.blocks * self.width**2 * self.grid[0] * self.grid[1]


Encoder = TypeVar("Encoder", bound=Body)


class AroundEncoder(Generic[Encoder]):
    """What every model that holds its body in `encoder` takes from it."""

    __slots__ = ()

    encoder: Encoder

    @property
    def body(self) -> Encoder:
        return self.encoder

    @property
    def image_size(self) -> tuple[int, int]:
        return self.encoder.image_size


Model = TypeVar("Model", bound=Any)


def with_body(model: Model, body: Any) -> Model:
    """The same model with another body."""
    return body if model.body is model else replace(model, encoder=body)
