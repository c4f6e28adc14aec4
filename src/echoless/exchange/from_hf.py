"""How do folders of transformers become ours? The vision transformers that our ViT can hold exactly, by model_type.

What a body has is read from its tensors (layer scale, registers, gates, relative biases), what its tensors do not show
from its config. Where our ViT cannot hold it, the refusal names the part.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from echoless.config import MAEConfig, MaskedConfig, ViTConfig
from echoless.config.model import Activation, Positions
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.foreign import Foreign, Imported, vit_config
from echoless.exchange.from_dino import dino_head
from echoless.exchange.hf_names import current_names, hf_encoder, prefix_of
from echoless.exchange.hf_vitmae import load_hf_vitmae
from echoless.exchange.names import Taken, count_blocks

# model_type -> what people call it.
HF_BODIES = {
    "vit": "a ViT",
    "vit_mae": "a ViTMAE",
    "vit_msn": "a ViT-MSN",
    "deit": "a DeiT",
    "beit": "a BEiT",
    "data2vec-vision": "a data2vec",
    "dinov2": "a DINOv2",
    "dinov2_with_registers": "a DINOv2 with registers",
    "dinov3_vit": "a DINOv3",
    "ijepa": "an I-JEPA",
}
_EPS = {"vit_msn": 1e-6, "dinov2": 1e-6, "dinov2_with_registers": 1e-6, "dinov3_vit": 1e-5}  # where none is written
_ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
}
# After the body, or unused by it.
_DROPPED = ("classifier.", "lm_head.", "decode_head.", "auxiliary_head.", "pooler.", "embeddings.mask_token")
_PATCHES = "embeddings.patch_embeddings.projection.weight"
_FADED = "faded_shortcuts"  # the entry that `echoless.fade` leaves in a config (shortcuts/travel.py)


def hf_family(model_type: object) -> str:
    """What a folder of this model_type holds; refused where our ViT cannot hold it."""
    if model_type in HF_BODIES:
        return f"{HF_BODIES[str(model_type)]} of transformers"
    known = ", ".join(HF_BODIES)
    raise UntrustedFile(
        f"model_type is {str(model_type)[:40]!r}, which is no plain vision transformer that our ViT can hold; allowed: "
        f"{known}"
    )


def from_hf(foreign: Foreign, options: ImportOptions) -> Imported:
    """The body of a folder; of a ViTMAE also the decoder, where it has one that ours can be."""
    if foreign.settings.get("model_type") == "vit_mae" and any(n.startswith("decoder.") for n in foreign.tensors):
        return _from_vitmae(foreign, options)
    _refuse_unheld(foreign)
    named = current_names(foreign.tensors)
    taken, prefix = Taken(named, "the state of a vision transformer of transformers"), prefix_of(named)
    # A model with a head has its own final norm beside the encoder's.
    unused = [*_DROPPED, *(f"{prefix}{name}" for name in _DROPPED), *(("layernorm.",) if prefix else ())]
    dropped = [f"{name}*" for name in dict.fromkeys(unused) if taken.drop(name)]
    head, why = dino_head(taken)
    dropped += [why] if why else []
    state = hf_encoder(taken, prefix)
    taken.refuse_the_rest()
    config = _config(foreign, options, state, taken(f"{prefix}{_PATCHES}"))
    return Imported(encoder=config, encoder_state=state, head_state=head, dropped=tuple(dropped))


def _from_vitmae(foreign: Foreign, options: ImportOptions) -> Imported:
    """ViTMAEForPreTraining."""
    _refuse_unheld(foreign)
    named, state = current_names(foreign.tensors), load_hf_vitmae(foreign.tensors)
    encoder, decoder = _part(state, "encoder."), _part(state, "decoder.")
    config = _config(foreign, options, encoder, named[f"vit.{_PATCHES}"])
    mae = _mae_config(foreign, config, named)
    fits = mae is not None and not named["decoder.decoder_pos_embed"][0, 0].any()
    return Imported(
        encoder=config,
        encoder_state=encoder,
        mae=mae if fits else None,
        decoder_state=decoder if fits else {},
        objective=MaskedConfig(
            mask_ratio=_number(foreign, "mask_ratio", 0.75),
            normalize_pixels=foreign.settings.get("norm_pix_loss") is True,
        ),
        dropped=() if fits else ("the decoder (its MLP ratio or its class-token position is not supported)",),
    )


def _refuse_unheld(foreign: Foreign) -> None:
    """Parts that decide the function and that no tensor shows."""
    settings = foreign.settings
    if settings.get(_FADED) is not None:
        raise UntrustedFile(
            f"{_FADED} is in its config: its shortcuts were faded by echoless.fade with alphas of their own, which a "
            "schedule of ours cannot hold; fold it first (echoless.fold) and save that"
        )
    both = settings.get("use_absolute_position_embeddings") is True and (
        settings.get("use_relative_position_bias") is True or settings.get("use_shared_relative_position_bias") is True
    )
    if both:
        raise UntrustedFile("it has absolute positions and relative biases at once; our ViT holds one of the two")
    if settings.get("use_relative_position_bias") is True and settings.get("use_shared_relative_position_bias") is True:
        raise UntrustedFile("it has relative biases per block and shared ones at once; our ViT holds one of the two")


def _config(foreign: Foreign, options: ImportOptions, state: Mapping[str, Tensor], patches: Tensor) -> ViTConfig:
    """From the shapes of our own state, and from what config.json says besides."""
    if options.alpha_min not in (None, 1.0):
        raise ConfigError(f"alpha_min is {options.alpha_min}, but models of transformers are plain; allowed here: 1")
    kind, size = str(foreign.settings.get("model_type")), foreign.settings.get("image_size")
    size = size if isinstance(size, int) or _is_pair(size) else None
    positions = _positions(kind, state)
    hidden = state["blocks.0.mlp.fc2.weight"].shape[1]
    gated = len(state["blocks.0.mlp.fc1.weight"]) == 2 * hidden
    swiglu = gated and kind.startswith("dinov2")  # its activation is not the one that hidden_act names
    return vit_config(
        patches,
        len(state["positions"]) if "positions" in state else _count_patches(size, patches),
        count_blocks(state, "blocks"),
        hidden,
        options,
        heads=_whole(foreign, "num_attention_heads"),
        norm_eps=_number(foreign, "layer_norm_eps", _EPS.get(kind, 1e-12)),
        image_size=size,
        final_norm="norm.weight" in state,
        class_token="cls_token" in state,
        registers=len(state.get("registers", ())),
        positions=positions,
        rope_theta=_number(foreign, "rope_theta", 100.0),
        antialias_positions=kind == "dinov2_with_registers",
        layer_scale=1.0 if "blocks.0.attn_scale.gamma" in state else None,
        gated_mlp=gated,
        activation="silu" if swiglu else _activation(foreign),
    )


def _positions(kind: str, state: Mapping[str, Tensor]) -> Positions:
    """A table that a ViTMAE brings is fixed there, too."""
    if "positions" in state:
        return "sincos" if kind == "vit_mae" else "learned"
    if kind == "dinov3_vit":
        return "rotary"
    if "blocks.0.attn.relative.table" in state:
        return "relative"
    raise UntrustedFile("it has no positions, neither a table nor relative biases; our ViT always has some")


def _activation(foreign: Foreign) -> Activation:
    name = foreign.settings.get("hidden_act", "gelu")
    if name not in _ACTIVATIONS:
        raise UntrustedFile(f"hidden_act is {str(name)[:40]!r}; our ViT holds {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _count_patches(size: Any, patches: Tensor) -> int:
    if size is None or patches.ndim != 4:
        raise UntrustedFile("its config does not say image_size, and its weights have no table of positions")
    sides = (size, size) if isinstance(size, int) else size
    return (sides[0] // patches.shape[2]) * (sides[1] // patches.shape[3])


def _mae_config(foreign: Foreign, encoder: ViTConfig, state: Any) -> MAEConfig | None:
    """None where the decoder's MLP has another ratio than the encoder's, which ours cannot have."""
    width, heads = _whole(foreign, "decoder_hidden_size"), _whole(foreign, "decoder_num_attention_heads")
    if int(width * encoder.mlp_ratio) != _whole(foreign, "decoder_intermediate_size"):
        return None
    depth = count_blocks(state, "decoder.decoder_layers")
    return MAEConfig(encoder=encoder, decoder="plain", decoder_width=width, decoder_depth=depth, decoder_heads=heads)


def _part(state: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) :]: tensor for name, tensor in state.items() if name.startswith(prefix)}


def _whole(foreign: Foreign, name: str) -> int:
    value = foreign.settings.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise UntrustedFile(f"{foreign.path / 'config.json'}: {name} is {value!r}; allowed: a whole number, 1 or more")
    return value


def _number(foreign: Foreign, name: str, default: float) -> float:
    value = foreign.settings.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise UntrustedFile(f"{foreign.path / 'config.json'}: {name} is {value!r}; allowed: a number")
    return float(value)


def _is_pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(side, int) for side in value)
