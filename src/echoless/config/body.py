"""What is the body of a model? The network whose shortcuts fade, stored in `RUN/encoder`. No torch.

A model config is a body itself (a U-ViT), or holds one in its field `encoder` (a masked autoencoder).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from echoless.config.checks import require, require_number, require_whole

if TYPE_CHECKING:
    from echoless.config.model import ShortcutConfig

# A config file may ask for anything; these keep a small file from asking for hours of building.
DEEPEST, WIDEST = 4096, 2**17


class BodyConfig(Protocol):
    """The interface of a body's config. `kind` is its name in RUN/encoder/config.json."""

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
        """A short description with its sizes."""
        ...

    @property
    def denoises(self) -> bool:
        """Whether it is a diffusion model, which takes a time as well as an image."""
        ...

    @property
    def extra_tokens(self) -> int:
        """Tokens before those of the patches."""
        ...

    @property
    def has_class_token(self) -> bool:
        """Whether the first of the extra tokens is a class token."""
        ...

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of patches; None where tokens are not patches of equal size."""
        ...

    @property
    def feature_layers(self) -> tuple[str, ...]:
        """The names of the blocks' outputs, in the order of the network, and of a final norm after them."""
        ...

    @property
    def feature_width(self) -> int:
        """Width of the last block's output."""
        ...

    @property
    def branches(self) -> int:
        """Number of residual branches, each with one shortcut."""
        ...

    @property
    def fades_over(self) -> Mapping[str, int]:
        """Arguments of `shortcuts.alphas`: {"depth": blocks} or {"shortcuts": number}."""
        ...

    @property
    def multiplications(self) -> int:
        """Approximate multiplications of one forward pass of one image, to estimate time."""
        ...

    @property
    def kept_values(self) -> int:
        """At least so many values of one image are kept for the backward pass, to refuse what cannot fit in memory."""
        ...


class TransformerBody:
    """What transformers derive from their fields, and what they require of them."""

    __slots__ = ()

    image_size: tuple[int, int]
    patch_size: int
    channels: int
    width: int
    depth: int
    heads: int
    mlp_ratio: float
    norm_eps: float

    denoises: ClassVar[bool] = False
    has_class_token: ClassVar[bool] = False

    def require_sizes(self) -> None:
        """Refuses sizes that no transformer can have."""
        for name in ("patch_size", "channels", "heads"):
            require_whole(name, getattr(self, name), 1)
        require_whole("width", self.width, 1, WIDEST)
        require_whole("depth", self.depth, 1, DEEPEST)
        require_number("mlp_ratio", self.mlp_ratio, 0, 64, ends="(]")
        require_number("norm_eps", self.norm_eps, 0, 1, ends="(]")
        require_width("width", self.width, "heads", self.heads)
        require_image_size(self.image_size)
        for name, side in zip(("height", "width"), self.image_size):
            whole = f"a multiple of the patch size {self.patch_size}"
            require(side % self.patch_size == 0, f"image {name}", side, whole)

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of patches."""
        return self.image_size[0] // self.patch_size, self.image_size[1] // self.patch_size

    @property
    def patch_values(self) -> int:
        return self.channels * self.patch_size**2

    @property
    def blocks(self) -> int:
        """Number of blocks over which the shortcuts fade."""
        return self.depth

    @property
    def title(self) -> str:
        return self.sizes

    @property
    def sizes(self) -> str:
        size = " x ".join(map(str, self.image_size))
        return f"{self.width} x {self.blocks}, patch {self.patch_size} at {size}"

    @property
    def feature_layers(self) -> tuple[str, ...]:
        return tuple(f"block{index:02d}/+mlp" for index in range(self.blocks))

    @property
    def feature_width(self) -> int:
        return self.width

    @property
    def branches(self) -> int:
        return 2 * self.blocks

    @property
    def fades_over(self) -> dict[str, int]:
        return {"depth": self.blocks}

    @property
    def multiplications(self) -> int:
        return 12 * self.blocks * self.width**2 * self.grid[0] * self.grid[1]

    @property
    def kept_values(self) -> int:
        # Of a token in a block: what both sub-layers start from, before and after their norms (4), queries, keys and
        # values (3), what attention gives (1), and the hidden layer of the MLP before and after its activation.
        return int((8 + 2 * self.mlp_ratio) * self.width) * self.blocks * self.grid[0] * self.grid[1]


def require_width(width_name: str, width: int, heads_name: str, heads: int) -> None:
    require(width % heads == 0, heads_name, heads, f"a divisor of {width_name} {width}")
    # Positions are sines and cosines of two coordinates: four equal parts.
    require(width % 4 == 0, width_name, width, "a multiple of 4")


def require_image_size(size: tuple[int, int]) -> None:
    require(len(size) == 2, "image_size", size, "a height and a width")
    for name, side in zip(("height", "width"), size):
        require_whole(f"image {name}", side, 1)


Encoder = TypeVar("Encoder", bound=BodyConfig)


class AroundEncoder(Generic[Encoder]):
    """Properties that a model with a body in `encoder` takes from it."""

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
