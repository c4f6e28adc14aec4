"""How does another library's model become an encoder? transformers folders and timm names; both optional."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import torch
from torch import Tensor

from echoless.config.body import DEEPEST
from echoless.config.extras import install_command
from echoless.config.normalisation import PROCESSOR, Normalisation, assume_usual, stated_by, usual
from echoless.data.resizing import BY_SIZE, Filter, Framing
from echoless.errors import ConfigError, EcholessError, RunError, UntrustedFile
from echoless.evaluation.encoder import NORM, Encoder, Layers, Tokens
from echoless.runs.open import fingerprint_of
from echoless.shortcuts import fade_saved
from echoless.shortcuts.travel import CONFIG_ENTRY
from echoless.storage import read_json_object


def from_transformers(folder: Path, device: str = "cpu") -> Encoder:
    """Any vision model that `AutoModel` loads from this folder and that returns hidden states (B, T, D)."""
    config, model = _read_transformers(folder)
    model = model.to(device).eval()
    channels, depth = getattr(config, "num_channels", 3), getattr(config, "num_hidden_layers", None)
    if not _is_count(channels) or not _is_count(depth):
        raise RunError(f"{folder} says neither num_channels nor num_hidden_layers; allowed: a vision transformer")
    size = _input_size(folder, config, model, channels)
    stated = _normalisation(folder, channels)
    mean, std = stated or usual(channels)
    assumed = None if stated else assume_usual(folder, channels)
    if assumed:
        print(assumed.sentence, file=sys.stderr)
    _fade_as_saved(folder, config, model, (channels, *size))
    hidden = tuple(f"hidden{index:02d}" for index in range(depth + 1))

    @torch.no_grad()
    def outputs(images_BCHW: Tensor) -> Tokens:
        """Every hidden state, and under NORM what the model ends in."""
        more: dict[str, Any] = {}
        if hasattr(config, "mask_ratio"):  # keep the patches in their order
            count = (size[0] // config.patch_size) * (size[1] // config.patch_size)
            more["noise"] = torch.arange(count, dtype=torch.float32).expand(len(images_BCHW), -1).to(device)
        output = model(images_BCHW.to(device), output_hidden_states=True, **more)
        return dict(zip(hidden, output.hidden_states)) | {NORM: output.last_hidden_state}

    seen, grid = outputs(torch.zeros(1, channels, *size)), _grid(config, size)
    layers = _layers(model, hidden, seen)
    extra_tokens = 1 if grid is None else max(0, seen[hidden[-1]].shape[1] - math.prod(grid))

    def tokens(images_BCHW: Tensor, wanted: Layers) -> Tokens:
        found = outputs(images_BCHW)
        return {name: found[name] for name in (layers if wanted is None else wanted) if name in found}

    return Encoder(
        name=str(folder),
        fingerprint=fingerprint_of(model.state_dict(), [config.to_json_string(), repr((mean, std, size))]),
        image_size=size,
        channels=channels,
        mean=mean,
        std=std,
        layers=layers,
        tokens=tokens,
        framing=_framing(folder, size),
        has_class_token=extra_tokens > 0,
        extra_tokens=extra_tokens,
        grid=grid,
        assumed=assumed,
    )


def _layers(model: Any, hidden: tuple[str, ...], seen: Tokens) -> tuple[str, ...]:
    """The outputs of the blocks, and a final norm, where there is one."""
    last, end = seen[hidden[-1]], seen[NORM]
    if end.shape == last.shape and not torch.equal(end, last):
        return (*hidden, NORM)
    # Nothing follows the last block; or transformers puts what follows it in its place.
    return (*hidden[:-1], NORM) if _has_final_norm(model) else hidden


def _input_size(folder: Path, config: Any, model: Any, channels: int) -> tuple[int, int]:
    """What its image processor makes, if the model takes that; else the size in its config.

    They differ where positions are interpolated: DINOv2 says 518, and is given crops of 224.
    """
    own, made = _pair(getattr(config, "image_size", 224), folder), _processed_size(folder)
    if made is None or made == own:
        return own
    try:
        with torch.no_grad():
            model(torch.zeros(1, channels, *made, device=model.device))
    except (ValueError, RuntimeError):  # its positions are those of one size
        return own
    return made


def _processed_size(folder: Path) -> tuple[int, int] | None:
    """Height and width of what the folder's image processor makes of any image; None where that varies."""
    file = folder / PROCESSOR
    settings = read_json_object(file) if file.is_file() else {}
    given = settings.get("crop_size" if settings.get("do_center_crop") else "size")
    sides = (given.get("height"), given.get("width")) if isinstance(given, Mapping) else (given, given)
    return (sides[0], sides[1]) if all(map(_is_count, sides)) else None  # type: ignore[return-value]


def _fade_as_saved(folder: Path, config: Any, model: Any, shape: tuple[int, ...]) -> None:
    """A model that was faded before it was saved is faded again, with the alphas in its config."""
    if not hasattr(config, CONFIG_ENTRY):
        return
    try:
        report = fade_saved(model, folder, example=torch.zeros(1, *shape, device=model.device))
    except ValueError as error:
        raise RunError(f"the shortcuts of {folder} were faded, which cannot be restored here: {error}") from None
    # transformers has just called the saved alphas unexpected.
    span = f"alpha from {report.alphas[0]:.4g} to {report.alphas[-1]:.4g}"
    print(f"{folder} was faded before it was saved: its alphas were found and are used ({span})", file=sys.stderr)


def _read_transformers(folder: Path) -> tuple[Any, Any]:
    """Config and model. No code of the folder is run, and every weight of the encoder comes from its file."""
    try:
        from transformers import AutoConfig, AutoModel
    except Exception as error:  # a broken install counts as none
        raise ConfigError(
            f"{folder} is a transformers folder, which needs the extra hf ({install_command('hf')}): {error}"
        ) from None
    require_no_code(folder)
    depth = read_json_object(folder / "config.json").get("num_hidden_layers", 1)
    if not isinstance(depth, int) or not 1 <= depth <= DEEPEST:
        raise RunError(f"{folder}: num_hidden_layers is {str(depth)[:40]}; allowed: 1 to {DEEPEST}")
    trusted = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **trusted)
        if hasattr(config, "vision_config"):
            raise RunError(f"{folder} holds an image-text model; give its vision part, saved on its own")
        if hasattr(config, "mask_ratio"):
            config.mask_ratio = 0.0  # a masked autoencoder would mask here too
        model, loading = AutoModel.from_pretrained(
            folder, config=config, use_safetensors=True, output_loading_info=True, **trusted
        )
    except EcholessError:
        raise
    except Exception as error:  # whatever transformers says of a folder
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise RunError(f"transformers cannot open {folder}: {reason}") from None
    _require_whole(folder, model, loading)
    return config, model


def require_no_code(folder: Path) -> None:
    """Refuse a folder that asks for Python code of its own to be run."""
    for name in ("config.json", PROCESSOR):
        if (folder / name).is_file() and "auto_map" in read_json_object(folder / name):
            raise UntrustedFile(
                f"{folder / name} has an auto_map, which asks for code of the folder to be run; allowed: models whose "
                "code is part of transformers"
            )


def _require_whole(folder: Path, model: Any, loading: Mapping[str, Any]) -> None:
    """Weights that are missing are random, and features of them are no features of the trained model.

    A pooler comes after the features, and heads are dropped: those may differ.
    """
    own = {name.split(".")[0] for name, _ in model.named_parameters()}
    missing = [key for key in loading["missing_keys"] if not key.startswith("pooler.")]
    found = [key.removeprefix(f"{model.base_model_prefix}.") for key in loading["unexpected_keys"]]
    unexpected = [key for key in found if key.split(".")[0] in own and not key.startswith("pooler.")]
    misfits = [str(key) for key in loading.get("mismatched_keys", ())]
    for what, keys in (("lack", missing), ("also have", unexpected), ("do not fit", misfits)):
        if keys:
            listed = ", ".join(sorted(keys)[:3])
            raise RunError(
                f"the weights in {folder} {what} {len(keys)} tensors of the encoder, such as {listed}; its features "
                "would not be those of the trained model"
            )


def from_timm(source: str, device: str = "cpu") -> Encoder:
    """`timm:vit_tiny_patch16_224` or `local-dir:DIR`, with the weights that timm finds for it."""
    try:
        import timm
    except Exception as error:
        raise ConfigError(f"{source} needs the extra timm ({install_command('timm')}): {error}") from None
    name = source.removeprefix("timm:")
    try:
        model = timm.create_model(name, pretrained=True).to(device).eval()
    except Exception as error:
        raise RunError(f"timm could not open {name!r}: {error}") from None
    settings = model.pretrained_cfg
    channels, *size = settings["input_size"]
    prefix = getattr(model, "num_prefix_tokens", 0)  # a class token, and registers, which may be there without one

    @torch.no_grad()
    def tokens(images_BCHW: Tensor, wanted: Layers) -> Tokens:
        output = model.forward_features(images_BCHW.to(device))
        return {"features": output if output.ndim == 3 else output.flatten(2).transpose(1, 2)}

    return Encoder(
        name=source,
        fingerprint=fingerprint_of(model.state_dict(), [name, str(prefix)]),
        image_size=(size[0], size[1]),
        channels=channels,
        mean=tuple(settings["mean"]),
        std=tuple(settings["std"]),
        layers=("features",),
        tokens=tokens,
        framing=_timm_framing(settings, size[0]),
        has_class_token=bool(prefix) and getattr(model, "has_class_token", True),
        extra_tokens=prefix,
    )


def _has_final_norm(model: Any) -> bool:
    return any(isinstance(getattr(model, name, None), torch.nn.LayerNorm) for name in ("layernorm", "norm"))


def _framing(folder: Path, size: tuple[int, int]) -> Framing:
    """As the folder's image processor resizes and crops; without one, as for our own encoders."""
    file = folder / PROCESSOR
    settings = read_json_object(file) if file.is_file() else {}
    given = settings.get("size")
    if not settings.get("do_resize", True) or given is None:
        return BY_SIZE
    kind: Filter = "bilinear" if settings.get("resample", 2) == 2 else "bicubic"  # Pillow's number
    if isinstance(given, Mapping):
        edge = given.get("shortest_edge")
    else:  # written by old versions: the shorter side where a crop follows, else both sides
        edge = given if settings.get("do_center_crop") else None
    if edge is None:
        return Framing(share=1.0, kind="stretch", filter=kind, every=True)
    if not _is_count(edge):
        raise RunError(f"{file}: size is {str(given)[:80]}; allowed: whole numbers")
    share = min(1.0, max(size) / edge)
    # Whole and bilinear is what small images get anyway.
    return Framing(share=share, filter=kind, every=share < 1 or kind == "bicubic")


def _timm_framing(settings: Mapping[str, Any], side: int) -> Framing:
    """timm rounds the resized side down."""
    resized = max(side, math.floor(side / float(settings.get("crop_pct") or 1.0)))
    kind: Filter = "bilinear" if settings.get("interpolation") == "bilinear" else "bicubic"
    return Framing(share=side / resized, filter=kind, every=resized > side or kind == "bicubic")


def _normalisation(folder: Path, channels: int) -> Normalisation | None:
    """As its image processor says; None where there is none, or where it does not."""
    file = folder / PROCESSOR
    settings = read_json_object(file) if file.is_file() else {}
    mean, std = stated_by(settings, channels)
    if mean is None:
        return None
    return _per_channel("image_mean", mean, channels, file), _per_channel("image_std", std, channels, file)


def _per_channel(name: str, values: Any, channels: int, file: Path) -> tuple[float, ...]:
    listed = values if isinstance(values, list) else []
    above = 0 if name == "image_std" else -1
    good = all(isinstance(each, int | float) and above < each and 0 <= each <= 1 for each in listed)
    if not good or len(listed) != channels:
        zero = ", none of them 0" if name == "image_std" else ""
        raise RunError(f"{file}: {name} is {str(values)[:80]}; allowed: {channels} numbers in [0, 1]{zero}")
    return tuple(map(float, listed))


def _pair(size: Any, folder: Path) -> tuple[int, int]:
    sides = (size, size) if isinstance(size, int) else size
    if not isinstance(sides, list | tuple) or len(sides) != 2 or not all(map(_is_count, sides)):
        raise RunError(f"{folder}: image_size is {str(size)[:80]}; allowed: one whole number, or height and width")
    return sides[0], sides[1]


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= 2**20


def _grid(config: Any, size: tuple[int, int]) -> tuple[int, int] | None:
    patch = getattr(config, "patch_size", None)
    return (size[0] // patch, size[1] // patch) if isinstance(patch, int) else None
