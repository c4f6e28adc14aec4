"""Which arguments does `export` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class ExportOptions:
    """Write an encoder for transformers, timm or onnxruntime, which need none of our code to load it.

    The alphas are folded into the weights; the result is read back and compared with the original before it appears.
    """

    run: AnyPath
    """A run, or an encoder folder."""
    _: KW_ONLY
    to: Literal["hf", "timm", "onnx"]
    """hf: transformers.ViTModel.from_pretrained(DIR). timm: timm.create_model("local-dir:DIR", pretrained=True).
    onnx: DIR/model.onnx for onnxruntime."""
    out: AnyPath
    """A new or empty folder."""
    tolerance: float = 1e-4
    """Largest relative error of the last block's output; above it nothing is written."""
