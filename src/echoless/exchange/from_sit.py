"""How do published SiTs and DiTs, and DiT folders of diffusers, become ours?

The two are one network, and their files look the same: what the network was trained to predict must be said. Blocks,
norms and the order of their modulations are ours too; only names differ, and how diffusers spaces its time waves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from echoless.config import DiffusionConfig, FlowConfig, SiTConfig
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.foreign import Foreign
from echoless.exchange.from_denoiser import ImportedDenoiser, denoiser_sizes, label_rows
from echoless.exchange.names import Taken, conv_to_linear, count_blocks
from echoless.models import sincos_positions

DIT = DiffusionConfig(schedule="ddpm", first_step=0)
MOST_POSITIONS = 2**24  # values; the largest published DiT has a third of it
OBJECTIVES: dict[str, DiffusionConfig | FlowConfig] = {"velocity": FlowConfig(), "ddpm": DIT}

_BLOCK = {
    "attn.qkv": "attn.qkv",
    "attn.proj": "attn.proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
    "adaLN_modulation.1": "modulation",
}
_DIFFUSERS_BLOCK = {
    "attn1.to_out.0": "attn.proj",
    "ff.net.0.proj": "mlp.fc1",
    "ff.net.2": "mlp.fc2",
    "norm1.linear": "modulation",
}


def from_sit(foreign: Foreign, options: ImportOptions) -> ImportedDenoiser:
    """facebookresearch/DiT and SiT, whose state dicts have the same names."""
    if options.objective not in OBJECTIVES:
        raise ConfigError(
            f"objective is {options.objective!r}, and {foreign.path.name} may be a SiT or a DiT, whose files have the "
            "same tensors; give --objective velocity for a SiT (linear interpolant), --objective ddpm for a DiT"
        )
    taken = Taken(foreign.tensors, "the state of a SiT or a DiT")
    patch_weight, positions = taken("x_embedder.proj.weight"), taken("pos_embed")[0]
    state = {
        "patch_embed.weight": conv_to_linear(patch_weight),
        "patch_embed.bias": taken("x_embedder.proj.bias"),
        "positions": positions,
        **taken.pair("t_embedder.mlp.0", "time_embed.0"),
        **taken.pair("t_embedder.mlp.2", "time_embed.2"),
        **taken.pair("final_layer.adaLN_modulation.1", "modulation"),
        **taken.pair("final_layer.linear", "to_pixels"),
    }
    depth = count_blocks(taken.state, "blocks")
    for index in range(depth):
        for theirs, ours in _BLOCK.items():
            state |= taken.pair(f"blocks.{index}.{theirs}", f"blocks.{index}.{ours}")
    sizes = denoiser_sizes(patch_weight, len(positions), len(taken("blocks.0.mlp.fc1.bias")), options)
    return _imported(taken, "y_embedder.embedding_table.weight", state, options, sizes | {"depth": depth})


def from_diffusers_dit(foreign: Foreign, options: ImportOptions) -> ImportedDenoiser:
    """A folder of diffusers' DiTTransformer2DModel; its time waves are spaced as diffusers spaces them."""
    _require_plain_dit(foreign)
    taken = Taken(foreign.tensors, "the state of diffusers' DiTTransformer2DModel")
    patch_weight, depth = taken("pos_embed.proj.weight"), count_blocks(taken.state, "transformer_blocks")
    embed = "transformer_blocks.{}.norm1.emb"
    state = {
        "patch_embed.weight": conv_to_linear(patch_weight),
        "patch_embed.bias": taken("pos_embed.proj.bias"),
        **taken.pair(f"{embed.format(0)}.timestep_embedder.linear_1", "time_embed.0"),
        **taken.pair(f"{embed.format(0)}.timestep_embedder.linear_2", "time_embed.2"),
        **taken.pair("proj_out_1", "modulation"),
        **taken.pair("proj_out_2", "to_pixels"),
    }
    for index in range(depth):
        state |= _diffusers_block(taken, index)
        _require_shared(taken, embed.format(0), embed.format(index))
    sizes = _diffusers_sizes(foreign, patch_weight, len(taken("transformer_blocks.0.ff.net.0.proj.bias")), options)
    state["positions"] = _positions(sizes)
    sizes |= {"depth": depth, "time_waves": "diffusers"}
    return _imported(taken, f"{embed.format(0)}.class_embedder.embedding_table.weight", state, options, sizes)


def _positions(sizes: dict[str, Any]) -> Tensor:
    """diffusers computes them and does not store them: a file of kilobytes may ask for any number."""
    rows, columns = (side // sizes["patch_size"] for side in sizes["image_size"])
    if not 1 <= rows * columns * sizes["width"] <= MOST_POSITIONS or sizes["width"] % 4:
        raise UntrustedFile(
            f"it asks for {rows} x {columns} positions of width {sizes['width']}; allowed: {MOST_POSITIONS} values"
        )
    return sincos_positions((rows, columns), sizes["width"])


def _imported(
    taken: Taken, labels: str, state: dict[str, Tensor], options: ImportOptions, sizes: dict[str, Any]
) -> ImportedDenoiser:
    classes: int | None = None
    notes: tuple[str, ...] = ()
    if labels in taken.state:
        classes, state["label_table"], notes = label_rows(taken(labels), options)
    taken.refuse_the_rest()
    values = sizes["channels"] * sizes["patch_size"] ** 2
    learn_sigma = len(state["to_pixels.bias"]) == 2 * values
    config = SiTConfig(**sizes, classes=classes, learn_sigma=learn_sigma, long_skips=False)
    objective = OBJECTIVES[options.objective or "ddpm"]
    return ImportedDenoiser(model=config, state=state, objective=objective, notes=notes)


def _diffusers_block(taken: Taken, index: int) -> dict[str, Tensor]:
    theirs, ours = f"transformer_blocks.{index}", f"blocks.{index}"
    state = {
        f"{ours}.attn.qkv.{kind}": torch.cat([taken(f"{theirs}.attn1.to_{part}.{kind}") for part in "qkv"])
        for kind in ("weight", "bias")
    }
    for name, our_name in _DIFFUSERS_BLOCK.items():
        state |= taken.pair(f"{theirs}.{name}", f"{ours}.{our_name}")
    return state


def _require_shared(taken: Taken, first: str, own: str) -> None:
    """Every block of theirs has an embedding of time and label; they are copies of one, or it is no DiT of ours."""
    names = [f"timestep_embedder.linear_{i}.{kind}" for i in (1, 2) for kind in ("weight", "bias")]
    table = "class_embedder.embedding_table.weight"
    for name in [*names, *([table] if f"{first}.{table}" in taken.state else [])]:
        if not torch.equal(taken(f"{own}.{name}"), taken(f"{first}.{name}")):
            raise UntrustedFile(f"{own}.{name} differs from that of the first block; all blocks must share it")


def _require_plain_dit(foreign: Foreign) -> None:
    wanted = {
        "norm_type": "ada_norm_zero",
        "activation_fn": "gelu-approximate",
        "attention_bias": True,
        "norm_elementwise_affine": False,
    }
    for name, value in wanted.items():
        if foreign.settings.get(name, value) != value:
            raise UntrustedFile(f"{foreign.path}: {name} is {foreign.settings[name]!r}; allowed: {value!r}")


def _diffusers_sizes(foreign: Foreign, patch_weight: Tensor, hidden: int, options: ImportOptions) -> dict[str, Any]:
    given = {name: foreign.settings.get(name) for name in ("sample_size", "num_attention_heads", "norm_eps")}
    if not isinstance(given["sample_size"], int) or not isinstance(given["num_attention_heads"], int):
        raise UntrustedFile(f"{foreign.path}: config.json lacks a whole sample_size or num_attention_heads")
    patches = (given["sample_size"] // max(patch_weight.shape[-1], 1)) ** 2
    sizes = denoiser_sizes(patch_weight, patches, hidden, options, heads=given["num_attention_heads"])
    eps = given["norm_eps"]
    return sizes | {"norm_eps": float(eps) if isinstance(eps, int | float) else 1e-5}
