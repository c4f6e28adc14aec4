"""Which shortcuts does a model of another library have? Built from its config with random weights, and traced once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from echoless.config.extras import install_command
from echoless.config.options import InspectOptions
from echoless.config.options.fields import with_home
from echoless.errors import ConfigError
from echoless.exchange.examples import (
    Example,
    diffusers_examples,
    first_that_runs,
    image_examples,
    transformers_examples,
)
from echoless.exchange.trained_layers import inspect_trained
from echoless.runs.open import is_trained
from echoless.shortcuts import FadeReport, fade
from echoless.shortcuts.saved import UnreadableWeights, find_saved
from echoless.storage import read_json_object

MOST_PARAMETERS = 2_000_000_000  # 8 GB in float32
MODEL_KINDS = "a transformers or diffusers folder, timm:NAME, torchvision:NAME, or a run"


def inspect_model(model: str | Path, **options: Any) -> FadeReport:
    """The shortcuts that `fade` finds in a model. The keywords are the fields of `InspectOptions`."""
    return inspect_with(with_home(InspectOptions(model, **options)))


def inspect_with(options: InspectOptions) -> FadeReport:
    name = str(options.model)
    if is_trained(name):
        _refuse_fading(options, "trained")
        return inspect_trained(Path(name))
    if (saved := _saved(Path(name))) is not None:
        _refuse_fading(options, "saved")
        return saved
    model, example = _open(name)
    try:
        report = fade(
            model,
            options.alpha_min,
            example=example,
            schedule=options.schedule,
            around=options.fade,
            within=options.within,
        )
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
    return replace(report, proposed=True)


def _saved(path: Path) -> FadeReport | None:
    """Of a model that was faded before it was saved; None of any other. Nothing is built for it."""
    folder = _network_of(path.parent if path.is_file() else path)
    try:
        found = find_saved(folder)
    except UnreadableWeights:  # they were not downloaded: the config says what the model is
        return None
    except ValueError as error:
        raise ConfigError(f"its alphas are damaged: {error}") from None
    if found is None:
        return None
    rule = f"It was faded before it was saved; these are its alphas, as they were found in {folder}."
    return FadeReport(found.model, found.shortcuts, (), rule, within=found.within, include=found.include)


def _refuse_fading(options: InspectOptions, how: str) -> None:
    """A run, or a model that was saved faded, has its own alphas: options that say how to fade would be ignored."""
    for given in ("alpha_min", "schedule", "fade", "within"):
        value = getattr(options, given)
        if value != getattr(InspectOptions, given):
            raise ConfigError(
                f"{given} is {value!r}, but {options.model} has the alphas it was {how} with; leave it out"
            )


def _open(name: str) -> tuple[nn.Module, Example]:
    library, _, rest = name.partition(":")
    if library == "torchvision" and rest:
        return _torchvision(rest)
    if library == "timm" and rest:
        return _timm(rest)
    path = Path(name)
    if path.exists():
        return _from_path(_network_of(path.parent if path.is_file() else path))
    if "/" in name or ":" in name or not name:
        raise ConfigError(f"model is {name!r}, which does not exist here; allowed: {MODEL_KINDS}")
    return _timm(name)


def _network_of(folder: Path) -> Path:
    """Of a pipeline, the folder of the network that does the work; any other folder itself."""
    if not (folder / "model_index.json").is_file():
        return folder
    parts = [folder / part for part in ("transformer", "unet", "prior") if (folder / part).is_dir()]
    if not parts:
        raise ConfigError(f"{folder} is a diffusers pipeline without transformer or unet; name one of its folders")
    return parts[0]


def _from_path(folder: Path) -> tuple[nn.Module, Example]:
    if not (folder / "config.json").is_file():
        raise ConfigError(f"{folder} holds no config.json; allowed: {MODEL_KINDS}")
    config = read_json_object(folder / "config.json")
    if "_class_name" in config:
        return _diffusers(folder, str(config["_class_name"]))
    if "model_type" in config:
        return _transformers(folder)
    if "architecture" in config:
        return _timm(f"local-dir:{folder}")
    raise ConfigError(f"{folder / 'config.json'} names no model_type or _class_name; allowed: {MODEL_KINDS}")


def _transformers(folder: Path) -> tuple[nn.Module, Example]:
    try:
        from transformers import AutoConfig, AutoModel
    except Exception as error:
        raise ConfigError(
            f"{folder} is a transformers folder, which needs the extra hf ({install_command('hf')}): {error}"
        ) from None

    def build() -> nn.Module:
        config = AutoConfig.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
        return AutoModel.from_config(config, dtype=torch.float32, trust_remote_code=False)

    model = _built("transformers", folder, build)
    return model, first_that_runs(model, transformers_examples(model))


def _diffusers(folder: Path, class_name: str) -> tuple[nn.Module, Example]:
    try:
        import diffusers
    except Exception as error:
        raise ConfigError(
            f"{folder} is a diffusers folder, which needs the extra hf ({install_command('hf')}): {error}"
        ) from None
    kind = getattr(diffusers, class_name, None)
    if not (isinstance(kind, type) and issubclass(kind, diffusers.ModelMixin)):
        raise ConfigError(f"{folder / 'config.json'}: _class_name is {class_name!r}; allowed: a model of diffusers")
    model = _built("diffusers", folder, lambda: kind.from_config(kind.load_config(folder, local_files_only=True)))
    return model, first_that_runs(model, diffusers_examples(model))


def _timm(name: str) -> tuple[nn.Module, Example]:
    try:
        import timm
    except Exception as error:
        raise ConfigError(
            f"model is {name!r}, which is not a folder here; as the name of a timm model it needs the extra timm "
            f"({install_command('timm')}): {error}"
        ) from None
    model = _built("timm", name, lambda: timm.create_model(name, pretrained=False))
    channels, height, width = model.pretrained_cfg["input_size"]  # type: ignore[index]
    return model, first_that_runs(model, image_examples(channels, [(height, width)]))


def _torchvision(name: str) -> tuple[nn.Module, Example]:
    try:
        import torchvision
    except Exception as error:
        raise ConfigError(f"torchvision:{name} needs torchvision, which cannot be imported here: {error}") from None
    model = _built("torchvision", name, lambda: torchvision.models.get_model(name, weights=None))
    side = int(getattr(model, "image_size", 224))
    return model, first_that_runs(model, image_examples(3, [(side, side), (299, 299)]))


def _built(library: str, name: str | Path, build: Callable[[], nn.Module]) -> nn.Module:
    """The model, after its size was checked without memory, where the library can build it so."""
    try:
        with torch.device("meta"):
            parameters = sum(parameter.numel() for parameter in build().parameters())
    except Exception:
        parameters = 0
    if parameters > MOST_PARAMETERS:
        raise ConfigError(
            f"{name} has {parameters / 1e9:.1f} billion parameters; allowed: {MOST_PARAMETERS / 1e9:g}, because it is "
            "built in memory; make a copy of its config with fewer layers"
        )
    try:
        return build().eval()
    except Exception as error:  # whatever another library says about a name or a config
        reason = " ".join(str(error).split())[:300]
        raise ConfigError(f"{library} cannot build {name}: {reason or type(error).__name__}") from None
