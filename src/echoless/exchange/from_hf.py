"""How do folders of transformers' ViTMAE and ViT become ours?"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from echoless.config import MAEConfig, MaskedConfig, ViTConfig
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.foreign import Foreign, Imported, vit_config
from echoless.exchange.hf_vitmae import current_names, hf_encoder, load_hf_vitmae
from echoless.exchange.names import Taken, count_blocks

_PATCHES = "embeddings.patch_embeddings.projection.weight"


def from_hf_vitmae(foreign: Foreign, options: ImportOptions) -> Imported:
    """ViTMAEForPreTraining, or its encoder alone (ViTMAEModel)."""
    named = current_names(foreign.tensors)
    if not any(name.startswith("decoder.") for name in named):
        return from_hf_vit(foreign, options)
    config = _config(foreign, options, named, "vit.")
    state = load_hf_vitmae(foreign.tensors)
    encoder, decoder = _part(state, "encoder."), _part(state, "decoder.")
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


def from_hf_vit(foreign: Foreign, options: ImportOptions) -> Imported:
    """ViTModel, or an encoder with a classifier on top, which is dropped."""
    taken = Taken(current_names(foreign.tensors), "the state of a ViT of transformers")
    prefix = "vit." if f"vit.{_PATCHES}" in taken.state else ""
    dropped = [f"{name}*" for name in ("classifier.", f"{prefix}pooler.") if taken.drop(name)]
    config = _config(foreign, options, taken.state, prefix)
    state = hf_encoder(taken, prefix)
    taken.refuse_the_rest()
    return Imported(encoder=config, encoder_state=state, dropped=tuple(dropped))


def _config(foreign: Foreign, options: ImportOptions, state: Any, prefix: str) -> ViTConfig:
    if options.alpha_min not in (None, 1.0):
        raise ConfigError(f"alpha_min is {options.alpha_min}, but models of transformers are plain; allowed here: 1")
    if foreign.settings.get("hidden_act", "gelu") != "gelu":
        raise UntrustedFile(f"hidden_act is {foreign.settings['hidden_act']!r}; allowed: 'gelu'")
    for name in (f"{prefix}{_PATCHES}", f"{prefix}embeddings.position_embeddings", f"{prefix}layers.0.mlp.fc1.bias"):
        if name not in state:
            raise UntrustedFile(f"the weights lack {name!r}; they must be the state of a ViT of transformers")
    size = foreign.settings.get("image_size")
    return vit_config(
        state[f"{prefix}{_PATCHES}"],
        state[f"{prefix}embeddings.position_embeddings"].shape[1] - 1,
        count_blocks(state, f"{prefix}layers"),
        len(state[f"{prefix}layers.0.mlp.fc1.bias"]),
        options,
        heads=_whole(foreign, "num_attention_heads"),
        norm_eps=_number(foreign, "layer_norm_eps", 1e-12),
        image_size=size if isinstance(size, int) or _is_pair(size) else None,
        final_norm=True,
    )


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
