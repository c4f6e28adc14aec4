"""What does every model have? A body: the part whose shortcuts are faded and that `RUN/encoder` holds. No torch.

A model config is a body itself (a U-ViT), or holds one in its field `encoder` (a masked autoencoder).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

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


class Transformer(Protocol):
    @property
    def image_size(self) -> tuple[int, int]: ...
    @property
    def patch_size(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def blocks(self) -> int: ...
    @property
    def grid(self) -> tuple[int, int]: ...


def transformer_title(body: Transformer) -> str:
    size = " x ".join(map(str, body.image_size))
    return f"{body.width} x {body.blocks}, patch {body.patch_size} at {size}"


def transformer_multiplications(body: Transformer) -> int:
    return 12 * body.blocks * body.width**2 * body.grid[0] * body.grid[1]


Model = TypeVar("Model", bound=Any)


def with_body(model: Model, body: Any) -> Model:
    """The same model with another body."""
    return body if model.body is model else replace(model, encoder=body)
