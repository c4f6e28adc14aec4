"""Which arguments does `export` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath, group


@dataclass(frozen=True)
class ExportOptions:
    """Export an encoder to transformers, timm or ONNX; loading it does not need echoless.

    The alphas are folded into the weights. The export is loaded back and compared with the original encoder first.
    """

    EXAMPLES = (
        "echoless export RUN --to hf --out DIR",
        "echoless export RUN --to onnx --out DIR",
    )

    run: AnyPath
    """A run, or an encoder folder."""
    _: KW_ONLY
    to: Literal["hf", "timm", "onnx"]
    """hf: transformers.ViTModel.from_pretrained(DIR). timm: timm.create_model("local-dir:DIR", pretrained=True).
    onnx: DIR/model.onnx for onnxruntime."""
    out: AnyPath
    """Output folder, new or empty."""

    group("rarely needed")
    tolerance: float = 1e-4
    """Largest allowed relative error of the last block's output; above it nothing is written."""
