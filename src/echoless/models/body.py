"""Which part of a model is kept after training? Its body, the network whose features are used.

A model is its own body (a diffusion transformer), or is built around one, its `encoder`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from echoless.models.features import Features
from echoless.shortcuts import Shortcut, shortcut_record


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The blocks of a model's networks, in order: of an encoder, a decoder, a momentum encoder.

    They hold most of the weights and activations: `--shard` divides them one by one, and `--checkpoint-activations`
    recomputes them one by one.
    """
    lists = [getattr(network, "blocks", None) for network in model.modules()]
    return [block for blocks in lists if isinstance(blocks, nn.ModuleList) for block in blocks]


class Backbone(nn.Module):
    """A network that is its own body."""

    config: Any

    @property
    def body(self) -> Any:
        return self

    @property
    def shortcuts(self) -> list[Shortcut]:
        """In the order of the stream: attention and MLP of the first block, of the second, ..."""
        raise NotImplementedError

    @property
    def shortcut_record(self) -> dict[str, Any]:
        """Stored with the weights, so that they are never used with other shortcuts."""
        return shortcut_record(self.config.shortcuts.variant, self.shortcuts)

    def check_images(self, images_BCHW: Tensor) -> None:
        if images_BCHW.ndim != 4 or images_BCHW.shape[1] != self.config.channels:
            shape = tuple(images_BCHW.shape)
            raise ValueError(f"images have the shape {shape}; allowed: (batch, {self.config.channels}, height, width)")

    def share_encoder(self) -> None:
        """Called after weights were loaded into the body; a body has no copies to update."""


class EncoderModel(nn.Module):
    """A model around `encoder`, with a decoder, projector or head that `RUN/encoder` does not hold."""

    encoder: Any

    @property
    def body(self) -> Any:
        return self.encoder

    def share_encoder(self) -> None:
        """Called after weights were loaded into `encoder`: copies them to a momentum encoder or teacher, if any."""

    def features(self, images_BCHW: Tensor, only: Collection[str] | None = None) -> Features:
        """The encoder's features of whole images: see `ViT.features`."""
        return self.encoder.features(images_BCHW, only)

    @property
    def shortcut_record(self) -> dict[str, Any]:
        return self.encoder.shortcut_record
