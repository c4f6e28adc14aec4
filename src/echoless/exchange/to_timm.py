"""How does an encoder become a folder that `timm.create_model("local-dir:DIR", pretrained=True)` loads?

timm's LayerNorm has a fixed eps, so the stream of a faded encoder is scaled (plain.py); a linear head of 1 / scale
gives the pooled feature its own size back.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echoless.config import ViTConfig
from echoless.data.resizing import SHARE
from echoless.errors import ConfigError
from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.names import linear_to_conv
from echoless.exchange.plain import Plain, ReferenceTokens, with_given_eps
from echoless.exchange.snippet import has_pictures
from echoless.exchange.target import Target, Unusable, Written, write_config
from echoless.storage.jsonfile import read_json_object
from echoless.storage.tensorfile import write_tensors

TIMM_EPS = 1e-6
ARCHITECTURE = "vit_base_patch16_224"  # any of timm's plain ViTs; the settings below replace all of its own

BY_TRANSFORM = """\
transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))
images = transform(image)[None]"""

FROM_ARRAY = "images = torch.from_numpy(images)"

USAGE = """\
model = timm.create_model("local-dir:DIR", pretrained=True).eval()   # without pretrained=True its weights are random
IMAGES
feature = model(images)   # (batch, width)"""

USAGE_WITH_NORM = """\
model = timm.create_model("local-dir:DIR", pretrained=True).eval()   # without pretrained=True its weights are random
IMAGES
_, [(patches, prefix)] = model.forward_intermediates(
    images, indices=1, return_prefix_tokens=True, norm=False, output_fmt="NLC")
tokens = torch.cat([prefix, patches], dim=1)DIVIDED   # (batch, 1 + patches, width)
feature = tokens.mean(dim=1)                          # (batch, width)"""


def write(folder: Path, source: ExportedEncoder, reference: ReferenceTokens) -> Written:
    _refuse_options(source.encoder.config)
    plain = with_given_eps(source.encoder, TIMM_EPS, reference)
    write_tensors(folder / "model.safetensors", timm_state(plain))
    write_config(folder, timm_config(plain, source), source)
    scaled = plain.scale != 1.0
    what = f"divided by {plain.scale:.8g} (echoless_stream_scale in config.json)" if scaled else "as it is"
    if source.encoder.config.final_norm:
        feature = (
            "The feature is the mean over all tokens, the class token included, of the last block's output before the "
            f"final norm, {what}. `model(images)` is the mean after the encoder's own final norm."
        )
        usage = USAGE_WITH_NORM.replace("DIVIDED", f" / {plain.scale:.8g}" if scaled else "")
    else:
        head = ", which a fixed linear head undoes; with another head, or none, divide by it" if scaled else ""
        feature = (
            "The feature is `model(images)`: the mean over all tokens, the class token included, of the last block's "
            "output. The tokens themselves (`forward_features`) are the encoder's"
            + (f" times {plain.scale:.8g}{head}." if scaled else ".")
        )
        usage = USAGE
    prepares = has_pictures(source)
    return Written(
        error=plain.error,
        settings={"eps of every norm": f"{plain.eps:.6g}", "scale of the tokens": f"{plain.scale:.8g}"},
        feature=feature,
        usage=_usage(usage, prepares),
        prepares=prepares,
    )


def _usage(code: str, prepares: bool) -> str:
    code = code.replace("IMAGES", BY_TRANSFORM if prepares else FROM_ARRAY)
    imports = "import timm\nimport torch\n" if "torch." in code else "import timm\n"
    return f"{imports}\n{code}"


def _refuse_options(config: ViTConfig) -> None:
    """What ours can have and timm's plain ViT is not given here."""
    named = {"class_token": True, "registers": 0, "layer_scale": None, "gated_mlp": False, "activation": "gelu"}
    unheld = [f"{name} {getattr(config, name)}" for name, plain in named.items() if getattr(config, name) != plain]
    unheld += [f"{config.positions} positions"] if config.positions in ("rotary", "relative") else []
    if unheld:
        raise ConfigError(f"--to timm does not hold {', '.join(unheld)}; --to hf and --to onnx do")


def timm_config(plain: Plain, source: ExportedEncoder) -> dict[str, Any]:
    config = plain.encoder.config
    classes = config.width if _has_head(plain) else 0
    return {
        "architecture": ARCHITECTURE,
        "num_classes": classes,
        "num_features": config.width,
        "global_pool": "avg",
        "echoless_stream_scale": plain.scale,
        "model_args": {
            "img_size": list(config.image_size),
            "patch_size": config.patch_size,
            "in_chans": config.channels,
            "num_classes": classes,
            "embed_dim": config.width,
            "depth": config.depth,
            "num_heads": config.heads,
            "mlp_ratio": config.mlp_ratio,
            "no_embed_class": True,
            "final_norm": config.final_norm,
            "fc_norm": False,
            "global_pool": "avg",
            "pool_include_prefix": True,
        },
        "pretrained_cfg": {
            "num_classes": classes,
            "input_size": [config.channels, *config.image_size],
            "fixed_input_size": True,
            "mean": list(source.mean),
            "std": list(source.std),
            "interpolation": "bicubic" if source.large else "bilinear",
            "crop_pct": SHARE if source.large else 1.0,
            "crop_mode": "center",
            "first_conv": None,  # or timm would adapt it from three channels
            "classifier": "head",
        },
    }


def timm_state(plain: Plain) -> dict[str, Tensor]:
    """Blocks have the same names there."""
    config, ours = plain.encoder.config, plain.encoder.state_dict()
    theirs = {name: tensor for name, tensor in ours.items() if name.startswith(("blocks.", "norm."))}
    theirs |= {
        "cls_token": ours["cls_token"][None, None],
        "pos_embed": ours["positions"][None],
        "patch_embed.proj.weight": linear_to_conv(ours["patch_embed.weight"], config.patch_size),
        "patch_embed.proj.bias": ours["patch_embed.bias"],
    }
    if _has_head(plain):
        theirs |= {
            "head.weight": torch.eye(config.width) / plain.scale,
            "head.bias": torch.zeros(config.width),
        }
    return theirs


def _has_head(plain: Plain) -> bool:
    return plain.scale != 1.0 and not plain.encoder.config.final_norm


@torch.no_grad()
def read_back(folder: Path, source: ExportedEncoder, images: Tensor) -> tuple[Tensor, str]:
    try:
        import timm
    except Exception as error:
        raise Unusable("timm", TARGET.extra, error) from None
    model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
    [(patches, prefix)] = model.forward_intermediates(
        images, indices=1, return_prefix_tokens=True, norm=False, output_fmt="NLC", intermediates_only=True
    )
    scale = read_json_object(folder / "config.json")["echoless_stream_scale"]
    return torch.cat([prefix, patches], dim=1) / scale, timm.__version__


TARGET = Target("timm", "timm", write, read_back)
