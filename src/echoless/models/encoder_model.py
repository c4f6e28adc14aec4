"""What do all models built around an encoder share? Its features and its shortcuts are the model's own."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from torch import Tensor, nn

from echoless.models.features import Features


class EncoderModel(nn.Module):
    """A model that trains `encoder`, the part that is kept (`RUN/encoder`); everything else serves the objective."""

    encoder: Any

    @property
    def body(self) -> Any:
        return self.encoder

    def share_encoder(self) -> None:
        """Called after weights were loaded into `encoder`: copies of it, where a model has any, take them over."""

    def features(self, images_BCHW: Tensor, only: Collection[str] | None = None) -> Features:
        """The encoder's features of whole images: see `ViT.features`."""
        return self.encoder.features(images_BCHW, only)

    @property
    def shortcut_record(self) -> dict[str, Any]:
        return self.encoder.shortcut_record
