"""How are trained weights opened? Here and nowhere else, whatever holds them:

    RUN                        RUN/encoder where the run is complete, else its newest valid checkpoint
    RUN/checkpoints/step-N     a checkpoint
    RUN/snapshots/step-N       an encoder-only snapshot
    FOLDER                     an encoder folder, or what `echoless import` wrote

From a checkpoint come the averaged weights where there are any: they are the result of a run. Weights that are not
finite, that do not fit their config, or that were trained under other shortcuts are refused.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from echoless.config import ObjectiveConfig, RunConfig, from_dict
from echoless.config.normalisation import Assumption
from echoless.config.training import OBJECTIVE_CONFIGS, LatentConfig, model_after
from echoless.errors import EcholessError, RunError, UntrustedFile
from echoless.models.outline import outline
from echoless.models.registry import BODIES, body_config, build
from echoless.runs.around import run_of
from echoless.runs.checkpoint import MANIFEST, STEP_FOLDER, find_latest_valid, load_checkpoint
from echoless.runs.weights import CONFIG, WEIGHTS, checked_shortcuts, load_weights, require_same_shortcuts
from echoless.storage.jsonfile import read_json_object

SOURCES = "a run, a checkpoint, a snapshot, or an encoder folder"
# What a network of each kind can be used for, for the sentence that refuses another use.
USES = {
    "vit": "evaluate, embed, finetune and export",
    "resnet": "evaluate and embed",
    "uvit": "evaluate, embed and sample",
    "sit": "evaluate, embed and sample",
}


@dataclass(frozen=True, kw_only=True)
class TrainedBody:
    """A trained network and what is known about it; the model is on the CPU and in evaluation mode."""

    name: str  # the path it was opened by
    origin: str  # which weights these are: "encoder", "snapshot of step 40", "checkpoint of step 120, averaged"
    is_checkpoint: bool  # the run it comes from has not ended: its numbers must say so
    step: int | None  # of a snapshot or a checkpoint
    config: Any  # of the body: its `kind` is a row of models/registry.py
    model: Any
    mean: tuple[float, ...]  # per channel of the images
    std: tuple[float, ...]
    objective: ObjectiveConfig | None  # None: not written down, as in an imported encoder
    latent: LatentConfig | None  # the space of a model that was trained on latents

    @property
    def kind(self) -> str:
        return self.config.kind

    @property
    def title(self) -> str:
        """The name; with the checkpoint, where it is one."""
        return f"{self.name} ({self.origin})" if self.is_checkpoint else self.name

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of all that decides its features."""
        words = [repr(self.config), repr(self.model.shortcut_record), repr((self.mean, self.std))]
        return fingerprint_of(self.model.state_dict(), words)


@dataclass(frozen=True, kw_only=True)
class TrainedModel:
    """The whole model of a run, with decoder or heads, from a checkpoint."""

    name: str
    origin: str
    step: int
    config: RunConfig
    model: Any


@dataclass(frozen=True, kw_only=True)
class Start:
    """Opened weights that a run starts from: a body and, where it was trained in one, the whole model."""

    body: TrainedBody
    whole: TrainedModel | None = None
    head: Mapping[str, Tensor] = field(default_factory=dict)  # of DINO, where the weights come with one
    foreign: bool = False  # of another project
    image_size: tuple[int, int] | None = None  # that its images are given at, where its config says another
    assumed: Assumption | None = None  # where it does not say how its images are normalised


def load_body(path: str | Path, *, kinds: Collection[str] = tuple(BODIES), use: str = "here") -> TrainedBody:
    """The trained network at `path`. `kinds`: those that the caller can use; `use`: what for, as errors say it."""
    place = _locate(Path(path))
    if place.checkpoint:
        return _body_of_checkpoint(str(path), place.folder, kinds, use)
    return _body_of_folder(str(path), place, kinds, use)


def load_model(path: str | Path) -> TrainedModel:
    """The whole model of a run, from its newest valid checkpoint, or of one checkpoint."""
    path = Path(path)
    folder = path if (path / MANIFEST).is_file() else _newest(path)
    if folder is None:
        raise RunError(f"{path} has no checkpoint, and only a checkpoint holds the whole model")
    return _model_of_checkpoint(str(path), folder)


def is_trained(path: str | Path) -> bool:
    """Whether `load_body` would find weights of ours there."""
    try:
        _locate(Path(path))
    except EcholessError:
        return False
    return True


def fingerprint_of(tensors: Mapping[str, Tensor], words: Sequence[str]) -> str:
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode() + b"\0")
    for name, tensor in sorted(tensors.items()):
        digest.update(name.encode() + b"\0" + tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def trained_tiles(source: str | Path) -> int | None:
    """The side of the tiles that a run was trained on; None where it saw whole images.

    An encoder folder says it in its config, a run in its data.
    """
    path = Path(source)
    for folder, section in ((path / "encoder", "config"), (path, "config"), (run_of(path), "data")):
        try:
            found = read_json_object(folder / CONFIG).get(section)
        except EcholessError:  # not a folder of ours
            continue
        tiles = found.get("tiles") if isinstance(found, dict) else None
        if isinstance(tiles, int):
            return tiles
    return None


class _Location(NamedTuple):
    folder: Path
    origin: str
    step: int | None = None
    checkpoint: bool = False


def _locate(path: Path) -> _Location:
    if not path.is_dir():
        found = "is a file, which `echoless import` may convert" if path.exists() else "does not exist"
        raise RunError(f"{path} {found}; allowed: {SOURCES}")
    if (path / MANIFEST).is_file():
        return _Location(path, "", checkpoint=True)
    if (path / "encoder" / CONFIG).is_file():
        return _Location(path / "encoder", "encoder")
    if (path / CONFIG).is_file() and (path / WEIGHTS).is_file():
        _refuse_foreign(path)
        if (step := STEP_FOLDER.fullmatch(path.name)) is None:
            return _Location(path, "encoder")
        return _Location(path, f"snapshot of step {int(step[1])}", int(step[1]))
    newest = _newest(path)
    if newest is not None:
        return _Location(newest, "", checkpoint=True)
    found = (
        "has neither an encoder nor a checkpoint yet" if (path / "checkpoints").is_dir() else "holds no trained model"
    )
    raise RunError(f"{path} {found}; allowed: {SOURCES}")


def _newest(run: Path) -> Path | None:
    found = find_latest_valid(run / "checkpoints")
    return None if found is None else found.path


def _refuse_foreign(folder: Path) -> None:
    described = read_json_object(folder / CONFIG)
    for key, library in (("model_type", "transformers"), ("_class_name", "diffusers"), ("architecture", "timm")):
        if key in described and "config" not in described:
            raise RunError(
                f"{folder} holds a model of {library}, which `echoless import` may convert; allowed: {SOURCES}"
            )


def _body_of_folder(name: str, place: _Location, kinds: Collection[str], use: str) -> TrainedBody:
    weights = load_weights(place.folder)
    described = weights.config
    kind = described.get("kind", "vit")  # written before there were others
    config = body_config(kind, described.get("model", {}))
    _require_kind(name, config.kind, kinds, use)
    model = _filled(config, weights.tensors, place.folder)
    require_same_shortcuts(model.shortcut_record, weights.shortcuts, names=("its config", "its weights"))
    latent = described.get("latent")
    latent = None if latent is None else from_dict(LatentConfig, latent, "latent")
    mean, std = _normalisation(config, latent, described.get("mean"), described.get("std"), place.folder)
    return TrainedBody(
        name=name,
        origin=place.origin,
        is_checkpoint=False,
        step=place.step,
        config=config,
        model=model,
        mean=mean,
        std=std,
        objective=_objective(described.get("objective")),
        latent=latent,
    )


def _body_of_checkpoint(name: str, folder: Path, kinds: Collection[str], use: str) -> TrainedBody:
    whole = _model_of_checkpoint(name, folder, kinds, use)
    config, data = whole.config, whole.config.data
    mean, std = _normalisation(config.model.body, data.latent, data.mean, data.std, folder)
    return TrainedBody(
        name=name,
        origin=whole.origin,
        is_checkpoint=True,
        step=whole.step,
        config=config.model.body,
        model=whole.model.body,
        mean=mean,
        std=std,
        objective=config.objective,
        latent=data.latent,
    )


def _model_of_checkpoint(
    name: str, folder: Path, kinds: Collection[str] = tuple(BODIES), use: str = "here"
) -> TrainedModel:
    checkpoint = load_checkpoint(folder, only=("model", "ema"))
    config = from_dict(RunConfig, checkpoint.manifest.get("config"))
    config = replace(config, model=model_after(config, checkpoint.step), fade_in=None)  # as these weights were trained
    _require_kind(name, config.model.body.kind, kinds, use)
    tensors, averaged = result_weights(checkpoint.tensors)
    _require_fitting(config.model, tensors, folder)
    model = build(config.model)
    model.load_state_dict(tensors)
    trained_under = checked_shortcuts(checkpoint.manifest.get("shortcuts"), str(folder / MANIFEST), UntrustedFile)
    require_same_shortcuts(model.shortcut_record, trained_under, names=("its config", "its weights"))
    origin = f"checkpoint of step {checkpoint.step}{', averaged' if averaged else ''}"
    return TrainedModel(name=name, origin=origin, step=checkpoint.step, config=config, model=model.eval())


def result_weights(tensors: Mapping[str, Mapping[str, Tensor]]) -> tuple[dict[str, Tensor], bool]:
    """The weights that a checkpoint stands for, under the model's own names, and whether they are averaged."""
    averaged = {
        # The names of torch's AveragedModel, which also counts its updates.
        name.removeprefix("module."): tensor
        for name, tensor in tensors.get("ema", {}).items()
        if name != "n_averaged"
    }
    return averaged or dict(tensors.get("model", {})), bool(averaged)


def _require_kind(name: str, kind: str, kinds: Collection[str], use: str) -> None:
    if kind not in kinds:
        raise RunError(
            f"{name} holds a network of kind {kind!r}, which {USES[kind]} take; allowed {use}: {', '.join(kinds)}"
        )


def _filled(config: Any, tensors: dict[str, Tensor], folder: Path) -> Any:
    """The body of a config with these weights."""
    model = _require_fitting(config, tensors, folder)
    kinds = {name: tensor.dtype for name, tensor in model.state_dict().items()}
    model.load_state_dict({name: tensor.to(kinds[name]) for name, tensor in tensors.items()}, assign=True)
    return model.eval()


def _require_fitting(config: Any, tensors: Mapping[str, Tensor], folder: Path) -> Any:
    """Refuses tensors of other names or shapes, before anything is allocated; returns the network without them."""
    model = outline(config)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            raise RunError(
                f"the weights in {folder} do not fit their config: {name} has the shape {found.get(name, 'none')}; "
                f"allowed: {expected.get(name, 'none')}"
            )
    for name, tensor in tensors.items():
        if not tensor.isfinite().all():
            raise RunError(f"{folder} holds numbers that are not finite in {name}")
    return model


def _objective(described: Any) -> ObjectiveConfig | None:
    kind = described.get("kind") if isinstance(described, dict) else None
    config = OBJECTIVE_CONFIGS.get(kind) if isinstance(kind, str) else None
    return None if config is None else from_dict(config, described, "objective")


def _normalisation(
    config: Any, latent: LatentConfig | None, mean: Any, std: Any, folder: Path
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Per channel of the images; where nothing is written: -1 to 1 for a diffusion model, images as they are else."""
    usual = (0.5, 0.5) if config.denoises else (0.0, 1.0)
    chosen = []
    for name, given, default in (("mean", mean, usual[0]), ("std", std, usual[1])):
        values = given or (default,) * config.channels
        good = isinstance(values, list | tuple) and all(_is_finite(value) for value in values)
        if not good or (latent is None and len(values) != config.channels):
            raise UntrustedFile(f"{folder}: {name} is {str(values)[:80]}; allowed: one finite number for each channel")
        chosen.append(tuple(float(value) for value in values))
    return chosen[0], chosen[1]


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
