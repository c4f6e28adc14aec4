"""Which class of transformers can hold an encoder of ours, and what are its config and tensors there?

    rotary positions                              DINOv3ViTModel
    relative biases                               BeitModel
    no class token                                IJepaModel
    layer scale, a gated MLP, several registers   Dinov2Model, with registers Dinov2WithRegistersModel
    one register                                  DeiTModel, as its second token
    none of these                                 ViTModel

Tensors carry the names that transformers writes to disk, which its older releases read too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from echoless.config import ViTConfig
from echoless.errors import ConfigError
from echoless.exchange.names import linear_to_conv
from echoless.exchange.plain import Plain
from echoless.models import ViT

State = dict[str, Tensor]
_ACTS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "silu": "silu"}


class HFModel(NamedTuple):
    """`settings`: what its config has besides the sizes. `tensors`: from our state."""

    model_type: str
    name: str  # of the class
    settings: Callable[[ViTConfig], dict[str, Any]]
    tensors: Callable[[ViT], State]


class Names(NamedTuple):
    """What a family calls the parts of a block."""

    block: str
    norms: tuple[str, str]
    attention: tuple[str, str, str, str]  # queries, keys, values, output
    mlp: tuple[str, str]
    scales: tuple[str, str] = ("", "")
    final_norm: str = "layernorm"


_VIT_ATTENTION = (
    "attention.attention.query",
    "attention.attention.key",
    "attention.attention.value",
    "attention.output.dense",
)
_VIT = Names(
    "encoder.layer", ("layernorm_before", "layernorm_after"), _VIT_ATTENTION, ("intermediate.dense", "output.dense")
)
_BEIT = _VIT._replace(scales=("lambda_1", "lambda_2"))
_SCALES = ("layer_scale1.lambda1", "layer_scale2.lambda1")
_DINOV2 = Names("encoder.layer", ("norm1", "norm2"), _VIT_ATTENTION, ("mlp.fc1", "mlp.fc2"), _SCALES)
_DINOV3 = Names(
    "layer",
    ("norm1", "norm2"),
    ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj"),
    ("mlp.up_proj", "mlp.down_proj"),
    _SCALES,
    "norm",
)


def hf_model(config: ViTConfig) -> HFModel:
    """The class that holds such an encoder."""
    if config.positions == "rotary":
        return _require(config, HFModel("dinov3_vit", "DINOv3ViTModel", _dinov3_settings, _dinov3), class_token=True)
    if config.positions == "relative":
        return _require(config, HFModel("beit", "BeitModel", _beit_settings, _beit), gated_mlp=False)
    if not config.class_token:
        return _require(config, HFModel("ijepa", "IJepaModel", _vit_settings, _ijepa), gated_mlp=False, registers=0)
    if config.layer_scale is not None or config.gated_mlp or config.registers > 1:
        kind = ("dinov2_with_registers", "Dinov2WithRegistersModel") if config.registers else ("dinov2", "Dinov2Model")
        return HFModel(*kind, _dinov2_settings, _dinov2)
    if config.registers:
        return HFModel("deit", "DeiTModel", _pooled_settings, _deit)
    return HFModel("vit", "ViTModel", _pooled_settings, _vit)


def _require(config: ViTConfig, model: HFModel, **needed: Any) -> HFModel:
    for name, value in needed.items():
        if getattr(config, name) != value:
            raise ConfigError(
                f"{name} is {getattr(config, name)}, which {model.name} of transformers cannot hold; --to onnx can"
            )
    return model


def hf_config(plain: Plain) -> dict[str, Any]:
    config = plain.encoder.config
    model, (height, width) = hf_model(config), config.image_size
    return {
        "architectures": [model.name],
        "model_type": model.model_type,
        "dtype": "float32",
        "hidden_size": config.width,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.heads,
        "hidden_act": _ACTS[config.activation],
        "layer_norm_eps": plain.eps,
        "image_size": height if height == width else [height, width],
        "patch_size": config.patch_size,
        "num_channels": config.channels,
        **model.settings(config),
    }


def _vit_settings(config: ViTConfig) -> dict[str, Any]:
    return {
        "intermediate_size": int(config.width * config.mlp_ratio),
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "qkv_bias": True,
        "encoder_stride": config.patch_size,
    }


def _pooled_settings(config: ViTConfig) -> dict[str, Any]:
    return _vit_settings(config) | {"pooler_output_size": config.width, "pooler_act": "linear"}


def _beit_settings(config: ViTConfig) -> dict[str, Any]:
    return {
        "intermediate_size": int(config.width * config.mlp_ratio),
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "drop_path_rate": 0.0,
        "layer_scale_init_value": 1.0,
        "use_mask_token": False,
        "use_absolute_position_embeddings": False,
        "use_relative_position_bias": True,
        "use_shared_relative_position_bias": False,
        "use_mean_pooling": not config.final_norm,
    }


def _dinov2_settings(config: ViTConfig) -> dict[str, Any]:
    registers = {"num_register_tokens": config.registers} if config.registers else {"use_mask_token": False}
    return {
        "mlp_ratio": _dinov2_ratio(config),
        "use_swiglu_ffn": config.gated_mlp,
        "layerscale_value": 1.0,
        "hidden_dropout_prob": 0.0,
        "attention_probs_dropout_prob": 0.0,
        "drop_path_rate": 0.0,
        "qkv_bias": True,
        **registers,
    }


def _dinov2_ratio(config: ViTConfig) -> int:
    """The whole number from which Dinov2Config makes the width of the MLP."""
    hidden = int(config.width * config.mlp_ratio)
    known = not config.gated_mlp or config.activation == "silu"
    for ratio in range(1, 65):
        whole = config.width * ratio
        made = (int(whole * 2 / 3) + 7) // 8 * 8 if config.gated_mlp else whole
        if known and made == hidden:
            return ratio
    raise ConfigError(
        f"the MLP has {hidden} hidden units{' with gates' if config.gated_mlp else ''} and {config.activation}, which "
        "Dinov2Model of transformers cannot hold; --to onnx can"
    )


def _dinov3_settings(config: ViTConfig) -> dict[str, Any]:
    return {
        "intermediate_size": int(config.width * config.mlp_ratio),
        "use_gated_mlp": config.gated_mlp,
        "num_register_tokens": config.registers,
        "rope_theta": config.rope_theta,
        "layerscale_value": 1.0,
        **dict.fromkeys(("query_bias", "key_bias", "value_bias", "proj_bias", "mlp_bias"), True),
        **dict.fromkeys(("pos_embed_shift", "pos_embed_jitter", "pos_embed_rescale")),  # none in our training
    }


def _vit(encoder: ViT) -> State:
    return _table(encoder, 1) | _blocks(encoder, _VIT) | _pooler(encoder)


def _deit(encoder: ViT) -> State:
    assert encoder.registers is not None
    return (
        _table(encoder, 2)
        | _blocks(encoder, _VIT)
        | _pooler(encoder)
        | {"embeddings.distillation_token": encoder.registers[None]}
    )


def _ijepa(encoder: ViT) -> State:
    return _table(encoder, 0) | _blocks(encoder, _VIT)


def _dinov2(encoder: ViT) -> State:
    state = _table(encoder, 1) | _blocks(encoder, _DINOV2)
    if encoder.registers is not None:
        state["embeddings.register_tokens"] = encoder.registers[None]
        state["embeddings.mask_token"] = torch.zeros(1, encoder.config.width)
    if encoder.config.gated_mlp:
        state = {
            name.replace(".mlp.fc1.", ".mlp.weights_in.").replace(".mlp.fc2.", ".mlp.weights_out."): tensor
            for name, tensor in state.items()
        }
    return state


def _dinov3(encoder: ViT) -> State:
    width, patches = encoder.config.width, _patches(encoder)
    state = {name.replace(".projection.", "."): tensor for name, tensor in patches.items()} | _blocks(encoder, _DINOV3)
    state["embeddings.mask_token"] = torch.zeros(1, 1, width)
    state["embeddings.register_tokens"] = (
        torch.zeros(1, 0, width) if encoder.registers is None else encoder.registers[None]
    )
    if encoder.config.gated_mlp:
        for name in [name for name in state if ".mlp.up_proj." in name]:
            gate, value = state[name].chunk(2)
            state |= {name.replace("up_proj", "gate_proj"): gate, name: value}
    return state


def _beit(encoder: ViT) -> State:
    state = _patches(encoder) | _blocks(encoder, _BEIT)
    for index in range(encoder.config.depth):
        attention = f"encoder.layer.{index}.attention.attention"
        table = encoder.state_dict()[f"blocks.{index}.attn.relative.table"]
        state[f"{attention}.relative_position_bias.relative_position_bias_table"] = table
        del state[f"{attention}.key.bias"]  # one number for all keys of a query: softmax does not see it
    if not encoder.config.final_norm:  # then BeitModel has a norm after its mean, and none before it
        state |= {f"pooler.{name}": state.pop(name) for name in ("layernorm.weight", "layernorm.bias")}
    return state


def _patches(encoder: ViT) -> State:
    """The class token, where there is one, and the patch convolution."""
    config, ours = encoder.config, encoder.state_dict()
    state = {
        "embeddings.patch_embeddings.projection.weight": linear_to_conv(ours["patch_embed.weight"], config.patch_size),
        "embeddings.patch_embeddings.projection.bias": ours["patch_embed.bias"],
    }
    return state | ({"embeddings.cls_token": ours["cls_token"][None, None]} if config.class_token else {})


def _table(encoder: ViT, tokens: int) -> State:
    """With positions for the patches, and zeros for the tokens before them, which have none of their own here."""
    assert encoder.positions is not None
    none = encoder.positions.new_zeros(tokens, encoder.config.width)
    return _patches(encoder) | {"embeddings.position_embeddings": torch.cat([none, encoder.positions.detach()])[None]}


def _pooler(encoder: ViT) -> State:
    """These classes always have one; it hands the class token on, where none would be drawn at random."""
    width = encoder.config.width
    return {"pooler.dense.weight": torch.eye(width), "pooler.dense.bias": torch.zeros(width)}


def _blocks(encoder: ViT, names: Names) -> State:
    """The blocks and the final norm, which does not change the scale where the encoder has none."""
    config, ours = encoder.config, encoder.state_dict()
    state = {
        f"{names.final_norm}.weight": ours.get("norm.weight", torch.ones(config.width)),
        f"{names.final_norm}.bias": ours.get("norm.bias", torch.zeros(config.width)),
    }
    for index in range(config.depth):
        block = {
            name.removeprefix(f"blocks.{index}."): t for name, t in ours.items() if name.startswith(f"blocks.{index}.")
        }
        named = _block(block, names, config.width)
        state |= {f"{names.block}.{index}.{name}": tensor for name, tensor in named.items()}
    return state


def _block(ours: State, names: Names, width: int) -> State:
    theirs: State = {}
    scales = [ours.get(f"{branch}_scale.gamma") for branch in ("attn", "mlp")]
    if not names.scales[0]:  # a family without layer scale: the factor belongs to the last linear of the branch
        ours = _scaled(_scaled(ours, "attn.proj", scales[0]), "mlp.fc2", scales[1])
    for kind in ("weight", "bias"):
        for part, name in zip(ours[f"attn.qkv.{kind}"].chunk(3), names.attention):
            theirs[f"{name}.{kind}"] = part
        for our_name, name in zip(
            ("norm1", "norm2", "attn.proj", "mlp.fc1", "mlp.fc2"), (*names.norms, names.attention[3], *names.mlp)
        ):
            theirs[f"{name}.{kind}"] = ours[f"{our_name}.{kind}"]
    if names.scales[0]:
        for name, gamma in zip(names.scales, scales):
            theirs[name] = torch.ones(width) if gamma is None else gamma
    return theirs


def _scaled(ours: State, layer: str, gamma: Tensor | None) -> State:
    """The state with a linear whose outputs are multiplied by these factors."""
    if gamma is None:
        return ours
    weight, bias = ours[f"{layer}.weight"], ours[f"{layer}.bias"]
    return ours | {f"{layer}.weight": gamma[:, None] * weight, f"{layer}.bias": gamma * bias}
