"""How are a recipe, the user's options and the data combined into one complete config? No torch."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from echoless.config import DataConfig, RunConfig, ShortcutConfig, ViTConfig, with_body
from echoless.config.checks import require, require_length, require_one_of
from echoless.config.facts import DataFacts, StartFacts, fitted, natural_patch, steps_for
from echoless.config.normalisation import require_statistics
from echoless.config.options import PretrainOptions
from echoless.config.options.fields import given
from echoless.errors import ConfigError
from echoless.recipes.continuing import adopted
from echoless.recipes.table import RECIPES

_SHORTCUT_OPTIONS = ("alpha_min", "variant", "schedule", "per", "fade")
_OPTIM_OPTIONS = (
    *("base_lr", "weight_decay", "weight_decay_on", "weight_decay_end", "warmup", "decay", "min_lr", "clip", "ema"),
)
# Those that not every recipe has: an option is allowed where the recipe's config has a field of its name.
_BODY_OPTIONS = (
    *("patch_size", "depth", "width", "zero_init", "long_skips"),
    *("init_scheme", "init_constants", "third_stage"),
)
_MODEL_OPTIONS = ("decoder", "decoder_depth", "taps")
_OBJECTIVE_OPTIONS = (
    *("mask_ratio", "normalize_pixels", "label_dropout"),
    *("label_smoothing", "mixup", "cutmix", "erase", "rand_augment", "drop_path"),
)
_PIXELS = ("mean", "std")


def resolve(
    options: PretrainOptions,
    facts: DataFacts,
    data: DataConfig,
    record: RunConfig | None = None,
    start: StartFacts | None = None,
) -> RunConfig:
    """The config of the run to be resumed (`record`), else the recipe's, changed where the user gave a value.

    start: the weights of --init, whose encoder the run has.
    """
    config = _recipe(options, facts) if record is None else record
    if record is None and start is not None:
        config = adopted(config, start, options)
    if record is not None:
        _refuse_other_run(options, record)
    _refuse_options_of_others(options, config)
    if options.conditional and facts.classes is None:
        raise ConfigError("conditional is True, but the data has no labels; give labelled data, or --labels FILE.csv")
    optim = replace(config.optim, **given(options, *_OPTIM_OPTIONS))
    if options.optimizer is not None:
        optim = replace(optim, name=options.optimizer)
    batch_size = config.batch_size if options.batch_size is None else options.batch_size
    steps = _steps(config, options, facts, batch_size)
    return replace(
        config,
        model=_model(config, options, keeps_encoder=record is None and start is not None),
        objective=_objective(config, options),
        optim=optim,
        data=_data(data, _wanted(config, options, facts, data), options, facts.channels),
        batch_size=batch_size,
        steps=steps,
        fade_in=_fade_in(options, record, steps),
        **given(options, "accumulate", "seed"),
    )


def _recipe(options: PretrainOptions, facts: DataFacts) -> RunConfig:
    name = options.recipe or "auto"
    require_one_of("recipe", name, tuple(RECIPES))
    return RECIPES[name](replace(facts, classes=None) if options.conditional is False else facts)


def _refuse_other_run(options: PretrainOptions, record: RunConfig) -> None:
    """Refuses to change the settings that define the model of a run that is resumed or repeated."""
    body: Any = record.model.body
    recorded: dict[str, Any] = {"recipe": record.recipe}
    if hasattr(body, "classes"):
        recorded["conditional"] = body.classes is not None
    if record.data.latent is None:  # of latents, the model's channels are not those of the images
        recorded["channels"] = record.data.channels or body.channels
    done, other = ("repeated", "leave out --config") if options.config else ("resumed", "give another --out")
    for name, value in given(options, *recorded).items():
        if value != recorded[name]:
            raise ConfigError(
                f"{name} is {value!r}, but the run being {done} has {recorded[name]!r}; leave it out, or {other}"
            )


def _refuse_options_of_others(options: PretrainOptions, config: RunConfig) -> None:
    """Refuses an option that the recipe does not use, instead of ignoring it."""
    known = {field.name for part in (config.model, config.model.body, config.objective) for field in fields(part)}
    denoises = "classes" in {field.name for field in fields(config.model.body)}
    known |= {"conditional", "latent"} if denoises else {*_PIXELS}  # their samplers need pixels in -1 to 1
    special = ("conditional", "latent", *_BODY_OPTIONS, *_MODEL_OPTIONS, *_OBJECTIVE_OPTIONS, *_PIXELS)
    for name in given(options, *special):
        allowed = ", ".join(option for option in special if option in known)
        if name not in known:
            raise ConfigError(f"{name} is not an option of recipe {config.recipe}; allowed: {allowed}")


def _model(config: RunConfig, options: PretrainOptions, *, keeps_encoder: bool = False) -> Any:
    """keeps_encoder: its weights are given, so that neither the patch size nor the final norm follows from others."""
    body = _widened(_sized(config.model.body, options, keeps_patch=keeps_encoder), options.width)
    body = replace(body, shortcuts=_shortcuts(body.shortcuts, options))
    another = options.decoder is not None and options.decoder != getattr(config.model, "decoder", None)
    if another and not keeps_encoder:
        body = replace(body, final_norm=options.decoder == "plain", zero_init=options.decoder == "long_skips")
    own = tuple(name for name in _BODY_OPTIONS if name not in ("patch_size", "width"))
    body = replace(body, **given(options, *own))
    model: Any = with_body(config.model, body)
    return replace(model, **given(options, *_MODEL_OPTIONS))


def _shortcuts(shortcuts: ShortcutConfig, options: PretrainOptions) -> ShortcutConfig:
    """A plain network to which an alpha_min is given is to be faded."""
    settings = given(options, *_SHORTCUT_OPTIONS)
    if shortcuts.variant == "identity" and options.variant is None and settings.get("alpha_min") is not None:
        settings["variant"] = "faded"
    return replace(shortcuts, **settings)


def _widened(body: Any, width: int | None) -> Any:
    """Another width: the number of heads changes, the width of a head does not."""
    if width is None or not hasattr(body, "heads"):
        return body if width is None else replace(body, width=width)
    head = body.width // body.heads
    require(width >= head and width % head == 0, "width", width, f"a multiple of {head}, the width of a head")
    return replace(body, width=width, heads=width // head)


def _objective(config: RunConfig, options: PretrainOptions) -> Any:
    settings = given(options, *_OBJECTIVE_OPTIONS)
    if settings.get("rand_augment") == 0:
        settings["rand_augment"] = None
    objective: Any = replace(config.objective, **settings)
    if options.variant == "none" and getattr(objective, "drop_path", 0.0) > 0:
        allowed = "0 with variant none, because a dropped branch would leave no signal"
        require(options.drop_path is None, "drop_path", options.drop_path, allowed)
        objective = replace(objective, drop_path=0.0)
    return objective


def _wanted(config: RunConfig, options: PretrainOptions, facts: DataFacts, measured: DataConfig) -> DataConfig:
    """Other images than those of the run that is repeated have other statistics, unless the recipe fixes them."""
    if options.config is None or measured.fingerprint == config.data.fingerprint:
        return config.data
    own = RECIPES[config.recipe](facts).data
    return replace(config.data, mean=own.mean, std=own.std)


def _data(measured: DataConfig, wanted: DataConfig, options: PretrainOptions, channels: int) -> DataConfig:
    """The images as they are, brought to the model as the recipe says: by their own statistics unless there are others.

    The statistics are those given, those of the recipe or of the run to be resumed, or those of the images.
    """
    for name, values in given(options, *_PIXELS).items():
        require_statistics(name, values, channels)
    return replace(
        measured,
        mean=options.mean or wanted.mean or measured.mean,
        std=options.std or wanted.std or measured.std,
        flip=wanted.flip,
        crop_scale=wanted.crop_scale if options.crop_scale is None else options.crop_scale,
        cache_side=wanted.cache_side if options.cache_side is None else options.cache_side,
    )


def _sized(body: Any, options: PretrainOptions, *, keeps_patch: bool = False) -> Any:
    """Image and patch size: as given, each fitted to the other where only one was."""
    if options.image_size is None and options.patch_size is None:
        return body
    size = body.image_size
    if options.image_size is not None:
        require(len(options.image_size) in (1, 2), "image_size", options.image_size, "one number, or height and width")
        require(min(options.image_size) >= 1, "image_size", options.image_size, "whole numbers, 1 or more")
        size = (options.image_size[0], options.image_size[-1])
    if not hasattr(body, "patch_size"):
        return replace(body, image_size=size)
    if options.patch_size is not None:
        patch, side = options.patch_size, min(size)
        require(patch >= 1, "patch_size", patch, "a whole number, 1 or more")
        require(patch <= side, "patch_size", patch, f"at most {side}, the shorter side of the image")
    else:
        another = isinstance(body, ViTConfig) and size != body.image_size and not keeps_patch
        patch = natural_patch(min(size)) if another else body.patch_size
    if options.image_size is None:
        size = fitted(size, patch)
    return replace(body, image_size=size, patch_size=patch)


def _fade_in(options: PretrainOptions, record: RunConfig | None, steps: int) -> float | None:
    """As given; a run that is resumed with another length keeps its ramp, step by step, and so its weights."""
    if options.fade_in is not None or record is None:
        return options.fade_in
    if record.fade_in is None or record.steps == steps:
        return record.fade_in
    ramp = record.fade_in * record.steps
    require(ramp <= steps, "max_steps", steps, f"{math.ceil(ramp)} or more, the steps in which this run fades in")
    return ramp / steps


def _steps(config: RunConfig, options: PretrainOptions, facts: DataFacts, batch_size: int) -> int:
    require_length(options.epochs, options.max_steps)
    require(batch_size >= 1, "batch_size", batch_size, "a whole number, 1 or more")
    if options.max_steps is not None:
        return options.max_steps
    if options.epochs is not None:
        return steps_for(options.epochs, facts.count, batch_size)
    # The recipe counted its steps at its own batch size: keep the number of images seen.
    return max(1, round(config.steps * config.batch_size / batch_size))
