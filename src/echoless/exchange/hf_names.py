"""Under which names does transformers keep the tensors of a vision transformer, and which of ours are they?

DINOv2, DINOv3, ViT, ViTMAE, DeiT, BEiT and I-JEPA differ in a few names and parts. What is written to disk has kept the
names of older releases. All of them are brought to one set of names first; transformers itself is not imported.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from echoless.exchange.names import Taken, conv_to_linear, count_blocks

# Where the encoder stands if there is a head on top of it.
PREFIXES = ("vit.", "deit.", "beit.", "data2vec_vision.", "ijepa.", "dinov2.", "dinov2_with_registers.", "dinov3_vit.")
# Applied in this order; the names on the right are those of the current release, where it has one for all.
_RENAMED = (
    ("encoder.layer.", "layers."),
    (".attention.attention.query.", ".attention.q_proj."),
    (".attention.attention.key.", ".attention.k_proj."),
    (".attention.attention.value.", ".attention.v_proj."),
    (".attention.attention.relative_position_bias.", ".relative_position_bias."),
    (".attention.output.dense.", ".attention.o_proj."),
    (".intermediate.dense.", ".mlp.fc1."),
    (".output.dense.", ".mlp.fc2."),
    (".mlp.down_proj.", ".mlp.fc2."),
    (".mlp.weights_out.", ".mlp.fc2."),
    (".mlp.weights_in.", ".mlp.gate_and_value."),
    (".norm1.", ".layernorm_before."),
    (".norm2.", ".layernorm_after."),
    (".layer_scale1.lambda1", ".lambda_1"),
    (".layer_scale2.lambda1", ".lambda_2"),
    ("encoder.relative_position_bias.relative_position_bias_table", "shared_relative"),
    ("shared_position_bias.relative_position_bias_table", "shared_relative"),
    (".relative_position_bias.relative_position_bias_table", ".relative"),
    ("embeddings.patch_embeddings.weight", "embeddings.patch_embeddings.projection.weight"),
    ("embeddings.patch_embeddings.bias", "embeddings.patch_embeddings.projection.bias"),
)
_BLOCK_PAIRS = {"layernorm_before": "norm1", "layernorm_after": "norm2"}
_BLOCK_LINEARS = {"attention.o_proj": "attn.proj", "mlp.fc2": "mlp.fc2"}


def current_names(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under one set of names, whichever model and release they are of."""
    return {_current(name): tensor for name, tensor in state_dict.items()}


def _current(name: str) -> str:
    for head in ("model.layer.", "layer."):  # DINOv3, in memory and on disk
        if name.startswith(head):
            name = f"layers.{name[len(head) :]}"
    if name.startswith("norm."):
        name = f"layernorm.{name[len('norm.') :]}"
    for old, new in _RENAMED:
        name = name.replace(old, new)
    return name


def prefix_of(state: Mapping[str, Tensor]) -> str:
    """What stands before the names of the encoder: nothing, or its name inside a model with a head."""
    return next((prefix for prefix in PREFIXES if any(name.startswith(prefix) for name in state)), "")


def hf_encoder(taken: Taken, prefix: str) -> dict[str, Tensor]:
    """The state of our `ViT`. What the tensors do not have, the encoder does not have."""
    ours = _embeddings(taken, f"{prefix}embeddings")
    if f"{prefix}layernorm.weight" in taken.state:
        ours |= taken.pair(f"{prefix}layernorm", "norm")
    for index in range(count_blocks(taken.state, f"{prefix}layers")):
        ours |= block_state(taken, f"{prefix}layers.{index}", f"blocks.{index}")
        if (shared := f"{prefix}shared_relative") in taken.state:
            ours[f"blocks.{index}.attn.relative.table"] = taken(shared)
    return ours


def _embeddings(taken: Taken, theirs: str) -> dict[str, Tensor]:
    """Class token, registers, positions and patches.

    Our tokens have no positions of their own: theirs are added to them. DeiT's second token is a register of ours.
    """
    state = taken.state
    ours = {"patch_embed.weight": conv_to_linear(taken(f"{theirs}.patch_embeddings.projection.weight"))}
    ours["patch_embed.bias"] = taken(f"{theirs}.patch_embeddings.projection.bias")
    names = [name for name in ("cls_token", "distillation_token") if f"{theirs}.{name}" in state]
    tokens = [taken(f"{theirs}.{name}").flatten() for name in names]
    if f"{theirs}.position_embeddings" in state:
        positions = taken(f"{theirs}.position_embeddings")[0]
        tokens = [token + positions[index] for index, token in enumerate(tokens)]
        ours["positions"] = positions[len(tokens) :]
    if tokens:
        ours["cls_token"] = tokens[0]
    if len(tokens) > 1:
        ours["registers"] = tokens[1][None]
    if f"{theirs}.register_tokens" in state and taken(f"{theirs}.register_tokens").shape[1]:
        ours["registers"] = taken(f"{theirs}.register_tokens")[0]
    return ours


def block_state(taken: Taken, theirs: str, ours: str) -> dict[str, Tensor]:
    """One block under our names. A bias that they do not have is zero here: the function is the same."""
    block: dict[str, Tensor] = {}
    for name, our_name in _BLOCK_PAIRS.items():
        block |= taken.pair(f"{theirs}.{name}", f"{ours}.{our_name}")
    for name, our_name in _BLOCK_LINEARS.items():
        block |= _linear(taken, (f"{theirs}.{name}",), f"{ours}.{our_name}")
    block |= _linear(taken, tuple(f"{theirs}.attention.{part}_proj" for part in "qkv"), f"{ours}.attn.qkv")
    block |= _linear(taken, _first_of_mlp(taken.state, f"{theirs}.mlp"), f"{ours}.mlp.fc1")
    for name, our_name in (("lambda_1", "attn_scale.gamma"), ("lambda_2", "mlp_scale.gamma")):
        if f"{theirs}.{name}" in taken.state:
            block[f"{ours}.{our_name}"] = taken(f"{theirs}.{name}")
    if f"{theirs}.relative" in taken.state:
        block[f"{ours}.attn.relative.table"] = taken(f"{theirs}.relative")
    return block


def _first_of_mlp(state: Mapping[str, Tensor], theirs: str) -> tuple[str, ...]:
    """The linears that read the MLP's input: gates before values, in one layer or in two, or the values alone."""
    if f"{theirs}.gate_proj.weight" in state:
        return (f"{theirs}.gate_proj", f"{theirs}.up_proj")
    names = [f"{theirs}.{name}" for name in ("gate_and_value", "up_proj") if f"{theirs}.{name}.weight" in state]
    return (names[0] if names else f"{theirs}.fc1",)


def _linear(taken: Taken, theirs: tuple[str, ...], ours: str) -> dict[str, Tensor]:
    """Linears side by side in one layer."""
    weights = [taken(f"{name}.weight") for name in theirs]
    biases = [
        taken(f"{name}.bias") if f"{name}.bias" in taken.state else weight.new_zeros(len(weight))
        for name, weight in zip(theirs, weights)
    ]
    return {f"{ours}.weight": torch.cat(weights), f"{ours}.bias": torch.cat(biases)}
