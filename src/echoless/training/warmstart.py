"""How does a run start from trained weights? They are converted to its alphas, so that the function does not change.

Weights trained under one schedule are rescaled to the other (shortcuts/fold.py). A long skip reads the stream that was
rescaled, so the part of it that reads the encoder is divided by the same factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from echoless.errors import EcholessError, RunError
from echoless.models import DINO, MAE, ViT
from echoless.models.classifier import Classifier
from echoless.models.layers import resample_positions
from echoless.models.places import RelativeBias
from echoless.randomness import generator_for
from echoless.runs import require_same_shortcuts
from echoless.runs.open import SOURCES, Start, TrainedBody, TrainedModel, load_body, load_model
from echoless.shortcuts import reschedule, stream_factors
from echoless.training.fitting import converting, fixed_alphas, require_same
from echoless.training.warmdenoiser import start_denoiser


def warm_start(model: Any, source: Path | Start) -> str:
    """Load weights into a new model: all of a masked autoencoder, else the body. Returns a line for the log."""
    try:
        if isinstance(source, Start):
            return _from_opened(model, source)
        source = Path(source)
        require_source(source)
        if model.config.kind == "mae" and (source / "checkpoints").is_dir():
            return _from_run(model, source)
        return _from_body(model, source)
    except RuntimeError as error:  # torch's report of tensors that do not fit
        if isinstance(error, EcholessError):
            raise
        name = source.body.name if isinstance(source, Start) else source
        raise RunError(f"--init {name} does not fit this model: {' '.join(str(error).split())}") from None


def _from_opened(model: Any, start: Start) -> str:
    if start.whole is not None and model.config.kind == "mae":
        return _start_whole(model, start.whole)
    said = _start(model, start.body)
    if not start.head or not isinstance(model, DINO):
        return said
    for branch in (model.student, model.teacher):
        branch.head.load_state_dict(start.head)
    return f"{said}; student and teacher have its head"


def require_source(source: Path) -> None:
    """Refuses early a path without trained weights."""
    if not any((source / name).exists() for name in ("checkpoints", "encoder", "model.safetensors", "MANIFEST.json")):
        found = "holds no trained model" if source.is_dir() else "is not a folder"
        raise RunError(f"--init {source} {found}; allowed: {SOURCES}")


def _from_body(model: Any, source: Path) -> str:
    return _start(model, load_body(source, kinds=(model.body.config.kind,), use="for --init of this run"))


def _start(model: Any, trained: TrainedBody) -> str:
    if isinstance(model, Classifier):
        trained = _hand_over_norm(trained, model)
    said = STARTS.get(trained.kind, _start_unmoved)(model.body, trained)
    model.share_encoder()
    return said


@torch.no_grad()
def _hand_over_norm(trained: TrainedBody, model: Classifier) -> TrainedBody:
    """The encoder without its final norm, where the classifier has one of its own (He et al. 2022).

    A class token was normalised by it in pretraining, so the classifier's starts from it; a mean of patches was not.
    """
    if not getattr(trained.config, "final_norm", False) or getattr(model.encoder.config, "final_norm", False):
        return trained
    if model.config.pooling == "cls":
        model.norm.load_state_dict(trained.model.norm.state_dict())
    encoder = ViT(replace(trained.config, final_norm=False))
    kept = {name: value for name, value in trained.model.state_dict().items() if not name.startswith("norm.")}
    encoder.load_state_dict(kept)
    return replace(trained, config=encoder.config, model=encoder)


def _from_run(model: MAE, source: Path) -> str:
    """Encoder and, where it is of the same kind, decoder."""
    whole = load_model(source)
    return _start_whole(model, whole) if whole.config.model.kind == "mae" else _from_body(model, source)


def _start_whole(model: MAE, whole: TrainedModel) -> str:
    old: MAE = whole.model
    require_same(old.encoder.config, model.encoder.config, _SAME, whole.name)
    moved = _move(old.encoder, model.encoder)
    _rescale_skips(old, model)
    model.encoder.load_state_dict(_resized(moved.state_dict(), moved, model.encoder))
    note = _function_note(old.encoder, model.encoder)
    if any(getattr(old.config, name) != getattr(model.config, name) for name in _OF_THE_DECODER):
        return f"started from the encoder of {whole.name}, {whole.origin}{note}; its decoder is another, and left out"
    decoder = {name: tensor for name, tensor in old.decoder.state_dict().items() if name != "positions"}
    model.decoder.load_state_dict(decoder | {"positions": model.decoder.positions})
    return f"started from {whole.name}, {whole.origin}{note}"


def _start_vit(encoder: ViT, trained: TrainedBody) -> str:
    require_same(trained.config, encoder.config, _SAME, trained.name)
    moved = _move(trained.model, encoder)
    encoder.load_state_dict(_resized(moved.state_dict(), moved, encoder))
    return f"started from the encoder {trained.title}{_function_note(trained.model, encoder)}"


def _start_unmoved(body: Any, trained: TrainedBody) -> str:
    """For networks whose alphas cannot be converted: sizes and shortcuts must be equal."""
    names = ("this run", f"--init {trained.name}")
    require_same_shortcuts(body.shortcut_record, trained.model.shortcut_record, names=names)
    body.load_state_dict(trained.model.state_dict())
    return f"started from {trained.title}"


STARTS: dict[str, Callable[[Any, TrainedBody], str]] = {
    "vit": _start_vit,
    "uvit": start_denoiser,
    "sit": start_denoiser,
}

_OF_THE_DECODER = ("decoder", "decoder_width", "decoder_depth", "decoder_heads", "taps")
_SAME = (
    *("patch_size", "channels", "width", "depth", "heads", "mlp_ratio", "final_norm"),
    *("class_token", "registers", "positions", "layer_scale", "gated_mlp", "activation"),
)


def _move(old: ViT, new: ViT) -> ViT:
    if old.shortcut_record == new.shortcut_record:
        return old
    with converting():
        return reschedule(old, fixed_alphas(new.shortcuts))


def _function_note(old: ViT, new: ViT) -> str:
    """What happened to the weights, and the measured change of the function that they compute."""
    moved = ""
    if old.config.image_size != new.config.image_size:
        sizes = [" x ".join(map(str, model.config.image_size)) for model in (old, new)]
        moved = f"; positions interpolated from {sizes[0]} to {sizes[1]}"
    if old.shortcut_record != new.shortcut_record:
        last = [record["alphas"][-1] for record in (old.shortcut_record, new.shortcut_record)]
        moved += (
            f"; branches rescaled from alpha_min {last[0]:.4g} to {last[1]:.4g}, the function is unchanged but for "
            "LayerNorm's eps"
        )
    return f"{moved}; its features differ by {_difference(old, new):.1e} from before"


def _difference(old: ViT, new: ViT) -> float:
    """Between the features of two encoders: the largest over two images of noise, relative to the largest feature."""
    shape = (2, new.config.channels, *new.config.image_size)
    images_BCHW = torch.randn(shape, generator=generator_for(0, "probe", 0))
    before, after = (model.features(images_BCHW) for model in (old, new))
    before_BTD, after_BTD = before[before.last_block], after[after.last_block]
    return float((after_BTD - before_BTD).abs().max() / before_BTD.abs().max())


@torch.no_grad()
def _rescale_skips(old: MAE, new: MAE) -> None:
    if old.config.decoder != "long_skips" or old.encoder.shortcut_record == new.encoder.shortcut_record:
        return
    factors = stream_factors(*(fixed_alphas(model.encoder.shortcuts) for model in (old, new)))
    for tap, skip in zip(old.decoder.taps, old.decoder.skips):  # type: ignore[arg-type]
        factor = factors[2 * (tap + 1)]
        skip.fc1.weight[:, : skip.encoder_width].div_(factor)
        skip.mask_token.mul_(factor)


def _resized(tensors: Mapping[str, Tensor], old: ViT, new: ViT) -> dict[str, Tensor]:
    """Another image size reads the same table of positions at its own grid, and the same relative biases."""
    resized, (before, after) = dict(tensors), (old.config.grid, new.config.grid)
    if "positions" in tensors:
        smooth = old.config.antialias_positions
        resized["positions"] = resample_positions(tensors["positions"], before, after, antialias=smooth)
    for name, module in old.named_modules():
        if isinstance(module, RelativeBias):
            resized[f"{name}.table"] = module.resampled(after)
    return resized
