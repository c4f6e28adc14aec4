"""How does an encoder become a folder that `transformers.ViTModel.from_pretrained` loads?

Tensors carry the names that transformers writes to disk, which its older releases read too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echoless.data.resizing import BY_SIZE, LARGE
from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.names import linear_to_conv
from echoless.exchange.plain import Plain, ReferenceTokens, with_one_eps
from echoless.exchange.target import NotInstalled, Target, Written, write_json_file
from echoless.models import ViT
from echoless.storage.tensorfile import write_tensors

_BLOCK_NAMES = {
    "norm1": "layernorm_before",
    "norm2": "layernorm_after",
    "attn.proj": "attention.output.dense",
    "mlp.fc1": "intermediate.dense",
    "mlp.fc2": "output.dense",
}

USAGE = """\
from transformers import AutoImageProcessor, ViTModel

model = ViTModel.from_pretrained("DIR").eval()
processor = AutoImageProcessor.from_pretrained("DIR")
inputs = processor(images, return_tensors="pt")
tokens = model(**inputs, output_hidden_states=True).hidden_states[-1]   # (batch, 1 + patches, width)
feature = tokens.mean(dim=1)                                            # (batch, width)"""

USAGE_WITHOUT_PROCESSOR = """\
from transformers import ViTModel

model = ViTModel.from_pretrained("DIR").eval()
tokens = model(pixel_values, output_hidden_states=True).hidden_states[-1]   # (batch, 1 + patches, width)
feature = tokens.mean(dim=1)                                                # (batch, width)"""


def write(folder: Path, source: ExportedEncoder, reference: ReferenceTokens) -> Written:
    plain = with_one_eps(source.encoder, reference)
    write_tensors(folder / "model.safetensors", hf_state(plain.encoder))
    write_json_file(folder / "config.json", hf_config(plain))
    processor = processor_config(source)
    if processor:
        write_json_file(folder / "preprocessor_config.json", processor)
    final = source.encoder.config.final_norm
    return Written(
        error=plain.error,
        settings={"layer_norm_eps": f"{plain.eps:.6g}"},
        feature=(
            "The feature is the mean over all tokens, the class token included, of `hidden_states[-1]`: the last "
            "block's output, before the final norm. `last_hidden_state` is that tensor after "
            + ("the encoder's own final LayerNorm" if final else "a LayerNorm with unit weights (the encoder has none)")
            + "; `pooler_output` is its class token."
        ),
        usage=USAGE if processor else USAGE_WITHOUT_PROCESSOR,
    )


def hf_config(plain: Plain) -> dict[str, Any]:
    config = plain.encoder.config
    height, width = config.image_size
    return {
        "architectures": ["ViTModel"],
        "model_type": "vit",
        "dtype": "float32",
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "intermediate_size": int(config.width * config.mlp_ratio),
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "layer_norm_eps": plain.eps,
        "image_size": height if height == width else [height, width],
        "patch_size": config.patch_size,
        "num_channels": config.channels,
        "qkv_bias": True,
        "encoder_stride": config.patch_size,
        "pooler_output_size": config.width,
        "pooler_act": "linear",
    }


def hf_state(encoder: ViT) -> dict[str, Tensor]:
    config, ours = encoder.config, encoder.state_dict()
    no_position = torch.zeros(1, config.width)  # our class token has none
    theirs = {
        "embeddings.cls_token": ours["cls_token"][None, None],
        "embeddings.position_embeddings": torch.cat([no_position, ours["positions"]])[None],
        "embeddings.patch_embeddings.projection.weight": linear_to_conv(ours["patch_embed.weight"], config.patch_size),
        "embeddings.patch_embeddings.projection.bias": ours["patch_embed.bias"],
        "layernorm.weight": ours.get("norm.weight", torch.ones(config.width)),
        "layernorm.bias": ours.get("norm.bias", torch.zeros(config.width)),
        # ViTModel always has a pooler; this one hands the class token on, where none would be drawn at random.
        "pooler.dense.weight": torch.eye(config.width),
        "pooler.dense.bias": torch.zeros(config.width),
    }
    for index in range(config.depth):
        for kind in ("weight", "bias"):
            q, k, v = ours[f"blocks.{index}.attn.qkv.{kind}"].chunk(3)
            for name, tensor in (("query", q), ("key", k), ("value", v)):
                theirs[f"encoder.layer.{index}.attention.attention.{name}.{kind}"] = tensor
            for our_name, their_name in _BLOCK_NAMES.items():
                theirs[f"encoder.layer.{index}.{their_name}.{kind}"] = ours[f"blocks.{index}.{our_name}.{kind}"]
    return theirs


def processor_config(source: ExportedEncoder) -> dict[str, Any] | None:
    """Our transform of evaluation, where an image processor can express it: one or three channels of 8 bit."""
    config = source.encoder.config
    if config.channels not in (1, 3):
        return None
    height, width = config.image_size
    large = min(height, width) > LARGE  # for small inputs small images are likely, which are used whole
    settings: dict[str, Any] = {
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(source.mean),
        "image_std": list(source.std),
        "do_convert_rgb": config.channels == 3,
        "do_resize": True,
        "resample": 3 if large else 2,  # Pillow's numbers: bicubic, bilinear
    }
    if height != width:  # no processor covers and crops to another shape: the image is stretched instead
        return settings | {"image_processor_type": "ViTImageProcessor", "size": {"height": height, "width": width}}
    return settings | {
        "image_processor_type": "CLIPImageProcessor",
        "size": {"shortest_edge": BY_SIZE.fit((height, width)).size[0] if large else height},
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
    }


@contextmanager
def _no_progress_bar(switch: Any) -> Iterator[None]:
    shown = switch.is_progress_bar_enabled()
    switch.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            switch.enable_progress_bar()


@torch.no_grad()
def read_back(folder: Path, source: ExportedEncoder, images: Tensor) -> tuple[Tensor, str]:
    try:
        import transformers
        from transformers import ViTModel
    except Exception as error:
        raise NotInstalled(str(error)) from None
    with _no_progress_bar(transformers.utils.logging):
        model = ViTModel.from_pretrained(folder, local_files_only=True).eval()
    tokens = model(images, output_hidden_states=True).hidden_states[-1]
    return tokens, transformers.__version__


TARGET = Target("transformers", "hf", write, read_back)
