"""How do trained weights start another run? Moved to its shortcuts first, so that the function does not change.

Weights trained under one schedule are rescaled to the other (shortcuts/fold.py). A long skip reads the stream that was
rescaled, so the part of it that looks at the encoder is divided by the same factor.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from echoless.config import MAEConfig, RunConfig, ViTConfig, from_dict
from echoless.errors import EcholessError, RunError
from echoless.models import DINO, MAE, MoCo, SiT, UViT, ViT
from echoless.models.layers import resample_positions
from echoless.runs import find_latest_valid, load_checkpoint, load_weights, require_same_shortcuts
from echoless.shortcuts import Faded, reschedule, stream_factors
from echoless.training.warmdenoiser import start_denoiser


def warm_start(model: nn.Module, source: Path) -> str:
    """Load the weights of a run (all of them) or of an encoder folder (the encoder). Returns a sentence saying what."""
    source = Path(source)
    require_source(source)
    try:
        if isinstance(model, MAE) and (source / "checkpoints").is_dir():
            return _from_run(model, source)
        encoder = getattr(model, "encoder", model)
        if isinstance(encoder, ViT):
            started = _from_encoder(encoder, source)
            if isinstance(model, MoCo | DINO):
                model.share_encoder()
            return started
        if isinstance(encoder, UViT | SiT):
            return start_denoiser(encoder, load_weights(_encoder_folder(source)), source)
        return _as_it_is(encoder, source)
    except RuntimeError as error:  # torch's report of tensors that do not fit
        if isinstance(error, EcholessError):
            raise
        raise RunError(f"--init {source} does not fit this model: {' '.join(str(error).split())}") from None


def require_source(source: Path) -> None:
    """Refuse early what cannot start a run."""
    if not any((source / name).exists() for name in ("checkpoints", "encoder", "model.safetensors")):
        found = "holds neither checkpoints nor an encoder" if source.is_dir() else "is no folder"
        raise RunError(f"--init {source} {found}; allowed: a run, or an encoder folder")


_SAME = ("patch_size", "channels", "width", "depth", "heads", "mlp_ratio", "final_norm")


def _require_same_sizes(old: ViTConfig, new: ViTConfig, source: Path) -> None:
    """By name, because torch would list every tensor, and would not notice another number of heads."""
    differing = [
        f"{name} is {getattr(old, name)} there and {getattr(new, name)} here"
        for name in _SAME
        if getattr(old, name) != getattr(new, name)
    ]
    if differing:
        raise RunError(f"--init {source} does not fit this model: {', '.join(differing)}")


def _from_run(model: MAE, source: Path) -> str:
    found = find_latest_valid(source / "checkpoints")
    if found is None:
        raise RunError(f"--init {source} has no checkpoint; allowed: a run with one, or an encoder folder")
    checkpoint = load_checkpoint(found.path)
    config = from_dict(RunConfig, checkpoint.manifest["config"]).model
    if not isinstance(config, MAEConfig):
        return _from_encoder(model.encoder, source)
    _require_same_sizes(config.encoder, model.encoder.config, source)
    old = MAE(config)
    require_same_shortcuts(old.shortcut_record, checkpoint.manifest["shortcuts"], names=("its config", "its weights"))
    averaged = checkpoint.tensors.get("ema", {})  # where there are averaged weights, they are the result of the run
    trained = {name.removeprefix("module."): value for name, value in averaged.items() if name != "n_averaged"}
    old.load_state_dict(trained or checkpoint.tensors["model"])
    moved = _move(old.encoder, model.encoder)
    _rescale_skips(old, model)
    model.encoder.load_state_dict(_resized(moved.state_dict(), moved, model.encoder))
    if config.decoder == model.config.decoder:
        decoder = {name: tensor for name, tensor in old.decoder.state_dict().items() if name != "positions"}
        model.decoder.load_state_dict(decoder | {"positions": model.decoder.positions})
        return f"started from {source}, step {checkpoint.step}{_moved_note(old.encoder, model.encoder)}"
    return f"started from the encoder of {source}, step {checkpoint.step}{_moved_note(old.encoder, model.encoder)}"


def _as_it_is(body: Any, source: Path) -> str:
    """Bodies whose shortcuts cannot be moved: the same sizes and the same shortcuts, or nothing."""
    folder = _encoder_folder(source)
    weights = load_weights(folder)
    if (found := weights.config.get("kind")) != body.config.kind:
        raise RunError(f"--init {source} holds a body of kind {found!r}; allowed for this model: {body.config.kind}")
    require_same_shortcuts(body.shortcut_record, weights.shortcuts, names=("this run", f"--init {source}"))
    body.load_state_dict(weights.tensors)
    return f"started from {folder}"


def _encoder_folder(source: Path) -> Path:
    return source if (source / "model.safetensors").exists() else source / "encoder"


def _from_encoder(encoder: ViT, source: Path) -> str:
    weights = load_weights(_encoder_folder(source))
    config = from_dict(ViTConfig, weights.config.get("model", {}), "model")
    _require_same_sizes(config, encoder.config, source)
    old = ViT(config)
    require_same_shortcuts(old.shortcut_record, weights.shortcuts, names=("its config", "its weights"))
    old.load_state_dict(weights.tensors)
    moved = _move(old, encoder)
    encoder.load_state_dict(_resized(moved.state_dict(), moved, encoder))
    return f"started from the encoder {source}{_moved_note(old, encoder)}"


def _move(old: ViT, new: ViT) -> ViT:
    if old.shortcut_record == new.shortcut_record:
        return old
    try:
        return reschedule(old, [_alpha(branch.shortcut) for branch in new.branches()])
    except ValueError as error:
        raise RunError(f"--init cannot move its weights to this run's shortcuts: {error}") from None


def _alpha(shortcut: Any) -> float:
    if not isinstance(shortcut, Faded):
        kind = type(shortcut).__name__
        raise RunError(f"--init cannot move weights between {kind} and other shortcuts; allowed: faded or identity")
    return shortcut.alpha


def _moved_note(old: ViT, new: ViT) -> str:
    if old.shortcut_record == new.shortcut_record:
        return ""
    last = [record["alphas"][-1] for record in (old.shortcut_record, new.shortcut_record)]
    moved = f"branches rescaled from alpha_min {last[0]:.4g} to {last[1]:.4g}"
    return f"; {moved}, the function is unchanged but for LayerNorm's eps"


@torch.no_grad()
def _rescale_skips(old: MAE, new: MAE) -> None:
    if old.config.decoder != "long_skips" or old.encoder.shortcut_record == new.encoder.shortcut_record:
        return
    alphas = [[_alpha(branch.shortcut) for branch in model.encoder.branches()] for model in (old, new)]
    factors = stream_factors(*alphas)
    for tap, skip in zip(old.decoder.taps, old.decoder.skips):  # type: ignore[arg-type]
        factor = factors[2 * (tap + 1)]
        skip.fc1.weight[:, : skip.encoder_width].div_(factor)
        skip.mask_token.mul_(factor)


def _resized(tensors: Mapping[str, Tensor], old: ViT, new: ViT) -> dict[str, Tensor]:
    """Another image size reads the same table of positions at its own grid."""
    positions = resample_positions(tensors["positions"], old.config.grid, new.config.grid)
    return dict(tensors) | {"positions": positions}
