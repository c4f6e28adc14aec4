"""`echoless export RUN --to hf|timm|onnx --out DIR`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from echoless.cli.parsing import parse


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write an encoder for another library, which needs none of our code to load it.

    The alphas are folded into the weights; the result is read back and compared with the original before it appears.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A run, or an encoder folder."""
    to: Literal["hf", "timm", "onnx"]
    """hf: transformers.ViTModel.from_pretrained(DIR). timm: timm.create_model("local-dir:DIR", pretrained=True).
    onnx: DIR/model.onnx for onnxruntime."""
    out: Path
    """A new or empty folder."""
    tolerance: float = 1e-4
    """Largest relative error of the last block's output; above it nothing is written."""


def run(arguments: Sequence[str]) -> int:
    command = parse(Export, arguments, "echoless export")
    from echoless.exchange import export_encoder

    print(export_encoder(command.run, command.to, command.out, tolerance=command.tolerance))
    return 0
