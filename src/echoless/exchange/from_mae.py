"""How do checkpoints of facebookresearch/mae, of the paper's authors, and plain ViTs in the same names become ours?

Blocks have our names there. Facts of the authors' variant: alpha on the encoder's shortcuts alone, evenly from 1 to
alpha_min over all of them; a skip from every second block, deepest first, into one decoder block each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from torch import Tensor

from echoless.config import MAEConfig, MaskedConfig, ShortcutConfig, ViTConfig
from echoless.config.model import Decoder
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError
from echoless.exchange.foreign import DECODER_HEADS, Foreign, Imported, vit_config
from echoless.exchange.names import Taken, conv_to_linear, count_blocks
from echoless.models.mae import tap_blocks

_LAYERS = ("norm1", "attn.qkv", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
_EPS = 1e-6


def from_mae(foreign: Foreign, options: ImportOptions) -> Imported:
    """He et al. 2022, with its decoder."""
    _refuse_alpha_min(foreign, options)
    taken = Taken(foreign.tensors, "the state of a masked autoencoder of facebookresearch/mae")
    config, state = _encoder(taken, options)
    mae = _decoder_config(taken, config, "plain", options)
    decoder = _decoder(taken, taken.pair("decoder_embed", "embed"))
    decoder["mask_token"] = taken("mask_token").flatten()
    taken.refuse_the_rest()
    fits = not taken("decoder_pos_embed")[0, 0].any()  # ours has no position for the class token
    return Imported(
        encoder=config,
        encoder_state=state,
        mae=mae if fits else None,
        decoder_state=decoder if fits else {},
        objective=_objective(foreign),
        dropped=() if fits else ("the decoder (its class token has a position)",),
    )


def from_authors(foreign: Foreign, options: ImportOptions) -> Imported:
    """The faded autoencoder of arXiv:2404.10947 by its authors."""
    shortcuts = ShortcutConfig(alpha_min=_alpha_min(foreign, options))
    taken = Taken(foreign.tensors, "the state of a faded masked autoencoder of the paper's authors")
    config, state = _encoder(taken, options, shortcuts=shortcuts, zero_init=True)
    mae = replace(_decoder_config(taken, config, "long_skips", options), taps="authors")
    decoder = _decoder(taken, taken.pair("decoder_embed", "embed"))
    decoder["cls_token"] = taken("decoder_cls_token").flatten()
    read = len(tap_blocks(config.depth, mae.decoder_depth, mae.taps))
    for index in range(read):
        decoder[f"skips.{index}.mask_token"] = taken(f"skip.{index}.mask_token").flatten()
        decoder |= taken.pair(f"skip.{index}.fc.0", f"skips.{index}.fc1")
        decoder |= taken.pair(f"skip.{index}.fc.2", f"skips.{index}.fc2")
    # Their large model has a skip for every second block, and too few decoder blocks to read them all.
    unread = [index for index in range(read, count_blocks(taken.state, "skip")) if taken.drop(f"skip.{index}.")]
    taken.refuse_the_rest()
    return Imported(
        encoder=config,
        encoder_state=state,
        mae=mae,
        decoder_state=decoder,
        objective=_objective(foreign),
        dropped=(f"{len(unread)} skips that no decoder block reads",) if unread else (),
    )


def from_vit(foreign: Foreign, options: ImportOptions) -> Imported:
    """An encoder alone, such as a fine-tuned one, or one of facebookresearch/dinov2; its classifier is dropped."""
    _refuse_alpha_min(foreign, options)
    taken = Taken(_in_our_names(foreign.tensors), "the state of a ViT with timm's or DINOv2's tensor names")
    dropped = [f"{name}*" for name in ("head.", "fc_norm.", "mask_token") if taken.drop(name)]
    known: dict[str, Any] = {}
    scaled = "blocks.0.attn_scale.gamma" in taken.state
    if scaled:  # DINOv2
        gated = len(taken("blocks.0.mlp.fc1.bias")) == 2 * taken("blocks.0.mlp.fc2.weight").shape[1]
        known = {"layer_scale": 1.0, "positions": "learned", "gated_mlp": gated}
        known |= {"activation": "silu" if gated else "gelu", "antialias_positions": "register_tokens" in taken.state}
    config, state = _encoder(taken, options, **known)
    if scaled:
        state |= {name: taken(name) for name in taken.state if name.endswith("_scale.gamma")}
    if "register_tokens" in taken.state:
        state["registers"] = taken("register_tokens")[0]
        config = replace(config, registers=len(state["registers"]))
    taken.refuse_the_rest()
    return Imported(encoder=config, encoder_state=state, dropped=tuple(dropped))


def _in_our_names(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Layer scale and SwiGLU; all else in a block has our names."""
    scales = ((".ls1.gamma", ".attn_scale.gamma"), (".ls2.gamma", ".mlp_scale.gamma"))
    gated = ((".mlp.w12.", ".mlp.fc1."), (".mlp.w3.", ".mlp.fc2."))
    named = {}
    for name, tensor in tensors.items():
        for theirs, ours in (*scales, *gated):
            name = name.replace(theirs, ours)
        named[name] = tensor
    return named


def _encoder(taken: Taken, options: ImportOptions, **known: Any) -> tuple[ViTConfig, dict[str, Tensor]]:
    positions = taken("pos_embed")
    patch_weight = taken("patch_embed.proj.weight")
    state = {
        "cls_token": taken("cls_token").flatten() + positions[0, 0],
        "positions": positions[0, 1:],
        "patch_embed.weight": conv_to_linear(patch_weight),
        "patch_embed.bias": taken("patch_embed.proj.bias"),
    }
    if final_norm := "norm.weight" in taken.state:
        state |= taken.pair("norm", "norm")
    depth = count_blocks(taken.state, "blocks")
    state |= _blocks(taken, "blocks", depth)
    hidden = taken("blocks.0.mlp.fc2.weight").shape[1]
    config = vit_config(
        patch_weight, len(state["positions"]), depth, hidden, options, final_norm=final_norm, norm_eps=_EPS, **known
    )
    return config, state


def _blocks(taken: Taken, theirs: str, depth: int) -> dict[str, Tensor]:
    state: dict[str, Tensor] = {}
    for index in range(depth):
        for layer in _LAYERS:
            name, ours = f"{theirs}.{index}.{layer}", f"blocks.{index}.{layer}"
            if layer == "attn.qkv" and f"{name}.bias" not in taken.state:
                weight = taken(f"{name}.weight")
                state |= {f"{ours}.weight": weight, f"{ours}.bias": weight.new_zeros(len(weight))}
            else:
                state |= taken.pair(name, ours)
    return state


def _decoder(taken: Taken, state: dict[str, Tensor]) -> dict[str, Tensor]:
    """What both decoders have in common."""
    depth = count_blocks(taken.state, "decoder_blocks")
    return {
        **state,
        "positions": taken("decoder_pos_embed")[0, 1:],
        **taken.pair("decoder_norm", "norm"),
        **taken.pair("decoder_pred", "to_pixels"),
        **_blocks(taken, "decoder_blocks", depth),
    }


def _decoder_config(taken: Taken, encoder: ViTConfig, decoder: Decoder, options: ImportOptions) -> MAEConfig:
    width = len(taken("decoder_norm.bias"))
    heads = options.decoder_heads or DECODER_HEADS.get(width)
    if heads is None:
        raise ConfigError(
            f"the file does not say how many heads its decoder of width {width} has; give --decoder-heads"
        )
    return MAEConfig(
        encoder=encoder,
        decoder=decoder,
        decoder_width=width,
        decoder_depth=count_blocks(taken.state, "decoder_blocks"),
        decoder_heads=heads,
    )


def _objective(foreign: Foreign) -> MaskedConfig:
    """As the script's own settings say, where the file has them."""
    known: dict[str, Any] = {}
    if isinstance(value := foreign.settings.get("norm_pix_loss"), bool):
        known["normalize_pixels"] = value
    if isinstance(ratio := foreign.settings.get("mask_ratio"), float) and 0 < ratio < 1:
        known["mask_ratio"] = ratio
    return MaskedConfig(**known)


def _alpha_min(foreign: Foreign, options: ImportOptions) -> float:
    if options.alpha_min is not None:
        return options.alpha_min
    hint = foreign.settings.get("min_decay")
    said = f" (its training settings say min_decay {hint:g})" if isinstance(hint, int | float) else ""
    raise ConfigError(
        f"{foreign.path.name} has long skips: its shortcuts may have been faded, but the weights do not say how "
        f"far; give --alpha-min{said}"
    )


def _refuse_alpha_min(foreign: Foreign, options: ImportOptions) -> None:
    if options.alpha_min not in (None, 1.0):
        raise ConfigError(
            f"alpha_min is {options.alpha_min}, but {foreign.path.name} is a plain residual network; allowed here: 1. "
            "Import it without, and fade it with `echoless pretrain DATA --init DIR --alpha-min ...`"
        )
