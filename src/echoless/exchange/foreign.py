"""What can be imported? Files and folders of others, read into tensors by name; and what an import makes of them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.config import MAEConfig, MaskedConfig, ShortcutConfig, ViTConfig
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.import_pth import read_pth
from echoless.storage import read_json_object
from echoless.storage.tensorfile import read_tensors

# Heads are not written in a state dict; these are the ones that every published ViT of that width has.
HEADS = {192: 3, 384: 6, 768: 12, 1024: 16, 1152: 16, 1280: 16}
_SHARD = re.compile(r"model-\d{5}-of-\d{5}\.safetensors")  # beside the index, and nowhere else
DECODER_HEADS = {512: 16}  # He et al. 2022, and the paper


@dataclass(frozen=True, kw_only=True)
class Foreign:
    """What was read: tensors, settings (a transformers config, or the arguments of a training script), the rest."""

    path: Path
    tensors: dict[str, Tensor]
    settings: dict[str, Any] = field(default_factory=dict)
    processor: dict[str, Any] = field(default_factory=dict)
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What it becomes: an encoder and, where one fits, a decoder."""

    encoder: ViTConfig
    encoder_state: dict[str, Tensor]
    mae: MAEConfig | None = None
    decoder_state: dict[str, Tensor] = field(default_factory=dict)
    objective: MaskedConfig = field(default_factory=MaskedConfig)
    head_state: dict[str, Tensor] = field(default_factory=dict)  # of DINO, where the weights have one
    dropped: tuple[str, ...] = ()  # with the reason, where there is one


def read_foreign(path: Path) -> Foreign:
    """A folder of transformers or diffusers, a safetensors file, or a file of torch.save."""
    if path.is_dir():
        return _read_folder(path)
    plain = path.resolve()  # download caches keep links
    if path.suffix == ".safetensors":
        return Foreign(path=path, tensors=read_tensors(plain)[0])
    content = read_pth(plain)
    return Foreign(path=path, tensors=content.tensors, settings=content.settings, dropped=content.dropped)


def _read_folder(path: Path) -> Foreign:
    config, processor = ((path / name).resolve() for name in ("config.json", "preprocessor_config.json"))
    weights = weights_of(path)
    if not config.exists() or not all(file.exists() for file in weights):
        raise UntrustedFile(
            f"{path} lacks config.json or model.safetensors; give a transformers or diffusers folder, or a file"
        )
    return Foreign(
        path=path,
        tensors={name: tensor for file in weights for name, tensor in read_tensors(file)[0].items()},
        settings=read_json_object(config),
        processor=read_json_object(processor) if processor.exists() else {},
    )


def weights_of(path: Path) -> list[Path]:
    """The files with the tensors: of a folder, those under diffusers' name, else under transformers'.

    A large model is in several files, which its index lists.
    """
    if not path.is_dir():
        return [path.resolve()]
    index = (path / "model.safetensors.index.json").resolve()
    if index.exists():
        return _listed(path, read_json_object(index).get("weight_map"))
    theirs = (path / "diffusion_pytorch_model.safetensors").resolve()
    return [theirs if theirs.exists() else (path / "model.safetensors").resolve()]


def _listed(path: Path, weight_map: Any) -> list[Path]:
    names = set(weight_map.values()) if isinstance(weight_map, dict) else set()
    if not names or not all(isinstance(name, str) and _SHARD.fullmatch(name) for name in names):
        raise UntrustedFile(f"{path}: model.safetensors.index.json lists no files of the form model-00001-of-00002")
    return [(path / name).resolve() for name in sorted(names)]


def vit_config(
    patch_weight_DCpp: Tensor, patches: int, depth: int, hidden: int, options: ImportOptions, **known: Any
) -> ViTConfig:
    """The config of an encoder, from the shapes of its weights. `known`: what is written somewhere."""
    if patch_weight_DCpp.ndim != 4 or patch_weight_DCpp.shape[2] != patch_weight_DCpp.shape[3]:
        shape = tuple(patch_weight_DCpp.shape)
        raise UntrustedFile(f"the patch convolution has the shape {shape}; allowed: (width, channels, patch, patch)")
    width, channels, patch, _ = patch_weight_DCpp.shape
    heads = options.heads or known.pop("heads", None) or HEADS.get(width)
    known.pop("heads", None)
    if heads is None:
        raise ConfigError(f"the file does not say how many heads its encoder of width {width} has; give --heads")
    shortcuts = ShortcutConfig(variant="identity", alpha_min=1.0)
    defaults: dict[str, Any] = {"zero_init": False, "shortcuts": shortcuts}
    return ViTConfig(
        image_size=image_size(patches, patch, options, known.pop("image_size", None)),
        patch_size=patch,
        channels=channels,
        width=width,
        depth=depth,
        heads=heads,
        mlp_ratio=mlp_ratio(width, hidden),
        **defaults | known,
    )


def image_size(positions: int, patch: int, options: ImportOptions, known: Any = None) -> tuple[int, int]:
    """From the number of positions, which must be a square unless the size is given."""
    given = options.image_size or known
    if given is not None:
        given = (given,) if isinstance(given, int) else given
        height, width = given[0], given[-1]
        if (height // patch) * (width // patch) != positions:
            raise ConfigError(
                f"image_size is {height} x {width}, which has {(height // patch) * (width // patch)} patches of "
                f"{patch}; allowed: a size with {positions}, as the weights have"
            )
        return height, width
    side = math.isqrt(positions)
    if side * side != positions:
        raise ConfigError(f"the weights have {positions} positions, which is no square; give --image-size")
    return side * patch, side * patch


def mlp_ratio(width: int, hidden: int) -> float:
    """The ratio that gives this many hidden units again, whatever rounding does."""
    ratio = hidden / width
    return ratio if int(width * ratio) == hidden else math.nextafter(ratio, math.inf)
