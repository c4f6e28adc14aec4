"""How does a published U-ViT become ours? Its three lists of blocks are one of ours, in the same order."""

from __future__ import annotations

from torch import Tensor

from echoless.config import DiffusionConfig, UViTConfig
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError
from echoless.exchange.foreign import Foreign
from echoless.exchange.from_denoiser import ImportedDenoiser, denoiser_sizes, label_rows
from echoless.exchange.names import Taken, conv_to_linear, count_blocks

_LAYERS = ("norm1", "attn.proj", "norm2", "mlp.fc1", "mlp.fc2")
SCHEDULES = ("vp", "stable-diffusion")


def from_uvit(foreign: Foreign, options: ImportOptions) -> ImportedDenoiser:
    """baofff/U-ViT: with or without classes, with or without the convolution at the end."""
    taken = Taken(foreign.tensors, "the state of a U-ViT without text conditioning or a learned time embedding")
    patch_weight, positions = taken("patch_embed.proj.weight"), taken("pos_embed")[0]
    state = {
        "patch_embed.weight": conv_to_linear(patch_weight),
        "patch_embed.bias": taken("patch_embed.proj.bias"),
        "positions": positions,
        **taken.pair("norm", "norm"),
        **taken.pair("decoder_pred", "to_pixels"),
    }
    half = count_blocks(taken.state, "in_blocks")
    for index, theirs in enumerate(_block_names(half)):
        state |= _block(taken, theirs, f"blocks.{index}")
    for index in range(half):
        state |= taken.pair(f"out_blocks.{index}.skip_linear", f"skips.{index}")
    if conv := "final_layer.weight" in taken.state:
        state |= taken.pair("final_layer", "conv")
    classes: int | None = None
    notes: tuple[str, ...] = ()
    if "label_emb.weight" in taken.state:
        classes, state["label_table"], notes = label_rows(taken("label_emb.weight"), options)
    taken.refuse_the_rest()
    extra = 1 if classes is None else 2
    sizes = denoiser_sizes(patch_weight, len(positions) - extra, len(state["blocks.0.mlp.fc1.bias"]), options)
    config = UViTConfig(**sizes, depth=2 * half, classes=classes, conv=conv)
    return ImportedDenoiser(model=config, state=state, objective=_objective(conv, options), notes=notes)


def _block_names(half: int) -> list[str]:
    return [*(f"in_blocks.{i}" for i in range(half)), "mid_block", *(f"out_blocks.{i}" for i in range(half))]


def _block(taken: Taken, theirs: str, ours: str) -> dict[str, Tensor]:
    state = {f"{ours}.attn.qkv.weight": taken(f"{theirs}.attn.qkv.weight")}
    for layer in _LAYERS:
        state |= taken.pair(f"{theirs}.{layer}", f"{ours}.{layer}")
    return state


def _objective(conv: bool, options: ImportOptions) -> DiffusionConfig:
    """As published: the huge model, which alone has no convolution, has the betas of Stable Diffusion."""
    schedule = options.objective or ("vp" if conv else "stable-diffusion")
    if schedule == "velocity" or schedule not in SCHEDULES:
        raise ConfigError(f"objective is {schedule!r}; allowed for a U-ViT: {', '.join(SCHEDULES)}")
    return DiffusionConfig(schedule=schedule)
