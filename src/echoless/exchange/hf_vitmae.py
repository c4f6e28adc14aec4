"""How do the weights of transformers' ViTMAE become ours? By name, without importing transformers."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from echoless.errors import UntrustedFile

_BLOCK_NAMES = {
    "layernorm_before": "norm1",
    "layernorm_after": "norm2",
    "attention.o_proj": "attn.proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


def load_hf_vitmae(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state of `ViTMAEForPreTraining` as the state of an `MAE` with the `plain` decoder."""
    taken = _Taken(state_dict)
    ours = {
        "encoder.cls_token": taken("vit.embeddings.cls_token").flatten(),
        "encoder.positions": taken("vit.embeddings.position_embeddings")[0, 1:],
        "encoder.patch_embed.weight": _conv_to_linear(taken("vit.embeddings.patch_embeddings.projection.weight")),
        "encoder.patch_embed.bias": taken("vit.embeddings.patch_embeddings.projection.bias"),
        "decoder.mask_token": taken("decoder.mask_token").flatten(),
        "decoder.positions": taken("decoder.decoder_pos_embed")[0, 1:],
    }
    # Our class token has no position of its own; theirs is added to it.
    ours["encoder.cls_token"] = ours["encoder.cls_token"] + state_dict["vit.embeddings.position_embeddings"][0, 0]
    for theirs, name in (
        ("vit.layernorm", "encoder.norm"),
        ("decoder.decoder_embed", "decoder.embed"),
        ("decoder.decoder_norm", "decoder.norm"),
        ("decoder.decoder_pred", "decoder.to_pixels"),
    ):
        ours |= _pair(taken, theirs, name)
    for theirs, name in (("vit.layers", "encoder.blocks"), ("decoder.decoder_layers", "decoder.blocks")):
        for index in range(_count(state_dict, theirs)):
            ours |= _block(taken, f"{theirs}.{index}", f"{name}.{index}")
    taken.refuse_the_rest()
    return ours


class _Taken:
    """Looks tensors up and remembers which, so that nothing is left over unnoticed."""

    def __init__(self, state_dict: Mapping[str, Tensor]) -> None:
        self.state_dict, self.names = state_dict, set[str]()

    def __call__(self, name: str) -> Tensor:
        if name not in self.state_dict:
            raise UntrustedFile(f"the weights have no {name!r}; allowed: the state of a ViTMAEForPreTraining")
        self.names.add(name)
        return self.state_dict[name]

    def refuse_the_rest(self) -> None:
        if rest := sorted(set(self.state_dict) - self.names):
            raise UntrustedFile(f"the weights have {rest[0]!r}; allowed: the state of a ViTMAEForPreTraining")


def _block(taken: _Taken, theirs: str, ours: str) -> dict[str, Tensor]:
    block: dict[str, Tensor] = {}
    for kind in ("weight", "bias"):
        parts = [taken(f"{theirs}.attention.{part}_proj.{kind}") for part in "qkv"]
        block[f"{ours}.attn.qkv.{kind}"] = torch.cat(parts)
    for their_name, our_name in _BLOCK_NAMES.items():
        block |= _pair(taken, f"{theirs}.{their_name}", f"{ours}.{our_name}")
    return block


def _pair(taken: _Taken, theirs: str, ours: str) -> dict[str, Tensor]:
    return {f"{ours}.{kind}": taken(f"{theirs}.{kind}") for kind in ("weight", "bias")}


def _conv_to_linear(weight_DCpp: Tensor) -> Tensor:
    """A convolution with stride = kernel is a linear on patches, whose values here run over rows, columns, channels."""
    return weight_DCpp.permute(0, 2, 3, 1).flatten(1)


def _count(state_dict: Mapping[str, Tensor], prefix: str) -> int:
    indices = {name[len(prefix) + 1 :].split(".")[0] for name in state_dict if name.startswith(prefix + ".")}
    return len(indices)
