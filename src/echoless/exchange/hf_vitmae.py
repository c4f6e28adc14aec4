"""How do the weights of transformers' ViTMAE and ViT become ours? By name, without importing transformers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from echoless.exchange.names import Taken, conv_to_linear, count_blocks

# What transformers writes to disk has kept the names of its older releases; in memory they are the ones on the right.
_RENAMED = (
    ("encoder.layer.", "layers."),
    (".attention.attention.query.", ".attention.q_proj."),
    (".attention.attention.key.", ".attention.k_proj."),
    (".attention.attention.value.", ".attention.v_proj."),
    (".attention.output.dense.", ".attention.o_proj."),
    (".intermediate.dense.", ".mlp.fc1."),
    (".output.dense.", ".mlp.fc2."),
)

_BLOCK_NAMES = {
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "attention.o_proj": "attn.proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def load_hf_vitmae(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of `ViTMAEForPreTraining`, in memory or on disk, as the state of an `MAE` with the `plain` decoder."""
    taken = Taken(current_names(state_dict), "the state of a ViTMAEForPreTraining")
    encoder = hf_encoder(taken, "vit.")
    ours = {f"encoder.{name}": tensor for name, tensor in encoder.items()}
    ours |= {f"decoder.{name}": tensor for name, tensor in _decoder(taken).items()}
    taken.refuse_the_rest()
    return ours


def current_names(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under the names of the current release, whichever release wrote them."""
    return {_current(name): tensor for name, tensor in state_dict.items()}


def _current(name: str) -> str:
    for old, new in _RENAMED:
        name = name.replace(old, new)
    return name


def hf_encoder(taken: Taken, prefix: str) -> dict[str, Tensor]:
    """The state of our `ViT`, with its final norm. `prefix` is where the encoder stands in the state."""
    positions = taken(f"{prefix}embeddings.position_embeddings")
    ours = {
        # Our class token has no position of its own; theirs is added to it.
        "cls_token": taken(f"{prefix}embeddings.cls_token").flatten() + positions[0, 0],
        "positions": positions[0, 1:],
        "patch_embed.weight": conv_to_linear(taken(f"{prefix}embeddings.patch_embeddings.projection.weight")),
        "patch_embed.bias": taken(f"{prefix}embeddings.patch_embeddings.projection.bias"),
    }
    ours |= taken.pair(f"{prefix}layernorm", "norm")
    for index in range(count_blocks(taken.state, f"{prefix}layers")):
        ours |= _block(taken, f"{prefix}layers.{index}", f"blocks.{index}")
    return ours


def _decoder(taken: Taken) -> dict[str, Tensor]:
    ours = {
        "mask_token": taken("decoder.mask_token").flatten(),
        "positions": taken("decoder.decoder_pos_embed")[0, 1:],
    }
    for theirs, name in (("embed", "embed"), ("norm", "norm"), ("pred", "to_pixels")):
        ours |= taken.pair(f"decoder.decoder_{theirs}", name)
    for index in range(count_blocks(taken.state, "decoder.decoder_layers")):
        ours |= _block(taken, f"decoder.decoder_layers.{index}", f"blocks.{index}")
    return ours


def _block(taken: Taken, theirs: str, ours: str) -> dict[str, Tensor]:
    block: dict[str, Tensor] = {}
    weights = [taken(f"{theirs}.attention.{part}_proj.weight") for part in "qkv"]
    block[f"{ours}.attn.qkv.weight"] = torch.cat(weights)
    biases = [f"{theirs}.attention.{part}_proj.bias" for part in "qkv"]
    if biases[0] in taken.state:
        block[f"{ours}.attn.qkv.bias"] = torch.cat([taken(name) for name in biases])
    else:
        block[f"{ours}.attn.qkv.bias"] = weights[0].new_zeros(sum(len(weight) for weight in weights))
    for their_name, our_name in _BLOCK_NAMES.items():
        block |= taken.pair(f"{theirs}.{their_name}", f"{ours}.{our_name}")
    return block
