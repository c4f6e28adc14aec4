"""How does an encoder become an ONNX file that onnxruntime runs with any batch size?

Each norm keeps an eps of its own there, so the folding is exact.
"""

from __future__ import annotations

import logging
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from echoless.config.extras import install_command
from echoless.errors import ConfigError
from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.plain import ReferenceTokens, folded, last_block, relative_error
from echoless.exchange.target import Target, Unusable, Written, write_config
from echoless.models import ViT
from echoless.storage.seal import write_sealed

MODEL = "model.onnx"
MOST_BYTES = 2**31 - 2**20  # a single protocol-buffer message ends at 2 GiB

USAGE = """\
import onnxruntime

session = onnxruntime.InferenceSession("DIR/model.onnx")
feature, tokens = session.run(["features", "tokens"], {"images": images})   # (batch, width), (batch, tokens, width)"""


class FeatureNetwork(nn.Module):
    """images -> the pooled feature and the tokens of the last block, before any norm."""

    def __init__(self, encoder: ViT) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        tokens_BTD, places = self.encoder.embed(images), self.encoder.places(images)
        for block in self.encoder.blocks:
            tokens_BTD = block(tokens_BTD, places=places)
        return tokens_BTD.mean(dim=1), tokens_BTD


def write(folder: Path, source: ExportedEncoder, reference: ReferenceTokens) -> Written:
    plain = folded(source.encoder).eval()
    write_sealed(folder / MODEL, onnx_bytes(plain, reference.images[:2]))
    write_config(folder, _description(source), source)
    return Written(
        error=relative_error(last_block(plain, reference.images), reference.tokens),
        settings={"eps": "one for each norm"},
        feature=(
            "The feature is the output `features`: the mean over all tokens, the class token included, of the last "
            "block's output before any norm. The output `tokens` holds those tokens."
        ),
        usage=USAGE,
        prepares=False,
    )


def onnx_bytes(encoder: ViT, images: Tensor) -> bytes:
    """The serialised model, without the traces of this machine's files that the exporter notes at every node."""
    size = sum(tensor.nbytes for tensor in encoder.state_dict().values())
    if size > MOST_BYTES:
        raise ConfigError(f"the encoder has {size} bytes of weights; allowed in one ONNX file: {MOST_BYTES}")
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except Exception as error:
        raise ConfigError(f"--to onnx needs the extra onnx ({install_command('onnx')}): {error}") from None
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    try:
        logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the exporter's own, about its own parts
            program = torch.onnx.export(
                FeatureNetwork(encoder).eval(),
                (images,),
                dynamo=True,
                input_names=["images"],
                output_names=["features", "tokens"],
                dynamic_shapes={"images": {0: torch.export.Dim("batch")}},
                verbose=False,
            )
    finally:
        logger.setLevel(level)
    assert program is not None
    return _without_traces(program.model_proto)


def _without_traces(model: Any) -> bytes:
    for node in (*model.graph.node, *(node for function in model.functions for node in function.node)):
        del node.metadata_props[:]
        node.doc_string = ""
    for value in (*model.graph.value_info, *model.graph.input, *model.graph.output, *model.graph.initializer):
        del value.metadata_props[:]
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    return model.SerializeToString(deterministic=True)


def _description(source: ExportedEncoder) -> dict[str, Any]:
    config = source.encoder.config
    return {
        "input": {"name": "images", "shape": ["batch", config.channels, *config.image_size], "dtype": "float32"},
        "outputs": ["features", "tokens"],
        "mean": list(source.mean),
        "std": list(source.std),
    }


def read_back(folder: Path, source: ExportedEncoder, images: Tensor) -> tuple[Tensor, str]:
    try:
        import onnxruntime
    except Exception as error:
        raise Unusable("onnxruntime", TARGET.extra, error) from None
    session = onnxruntime.InferenceSession(str(folder / MODEL), providers=["CPUExecutionProvider"])
    (tokens,) = session.run(["tokens"], {"images": images.numpy()})
    return torch.from_numpy(tokens), onnxruntime.__version__


TARGET = Target("onnxruntime", "onnx", write, read_back)
