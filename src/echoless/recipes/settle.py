"""How do a recipe, the user's options and the data become one config with nothing left open? No torch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from echoless.config import DataConfig, MAEConfig, MaskedConfig, RunConfig
from echoless.config.checks import require, require_number, require_one_of
from echoless.config.options import PretrainOptions
from echoless.recipes.facts import DataFacts, fitted, natural_patch
from echoless.recipes.masked import RECIPES, steps_for

_SHORTCUT_OPTIONS = ("alpha_min", "variant", "schedule", "per", "fade")
_OPTIM_OPTIONS = ("base_lr", "weight_decay", "warmup", "decay", "clip", "ema")
_OBJECTIVE_OPTIONS = ("mask_ratio", "normalize_pixels")


def settle(options: PretrainOptions, facts: DataFacts, data: DataConfig) -> RunConfig:
    """The recipe's config, changed where the user said so."""
    require_one_of("recipe", options.recipe, tuple(RECIPES))
    config = RECIPES[options.recipe](facts)
    encoder = _sized(config, options)
    encoder = replace(encoder, shortcuts=replace(encoder.shortcuts, **_given(options, _SHORTCUT_OPTIONS)))
    assert isinstance(config.model, MAEConfig) and isinstance(config.objective, MaskedConfig)
    model = replace(config.model, encoder=encoder)
    if options.decoder is not None:
        encoder = replace(encoder, final_norm=options.decoder == "plain", zero_init=options.decoder == "long_skips")
        model = replace(model, encoder=encoder, decoder=options.decoder)
    optim = replace(config.optim, **_given(options, _OPTIM_OPTIONS))
    if options.optimizer is not None:
        optim = replace(optim, name=options.optimizer)
    batch_size = config.batch_size if options.batch_size is None else options.batch_size
    return replace(
        config,
        model=model,
        objective=replace(config.objective, **_given(options, _OBJECTIVE_OPTIONS)),
        optim=optim,
        data=data if options.crop_scale is None else replace(data, crop_scale=options.crop_scale),
        batch_size=batch_size,
        accumulate=options.accumulate,
        steps=_steps(config, options, facts, batch_size),
        seed=options.seed,
    )


def _given(options: PretrainOptions, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def _sized(config: RunConfig, options: PretrainOptions) -> Any:
    """Image and patch size: as given, each fitted to the other where only one was."""
    encoder = config.model.encoder
    if options.image_size is None and options.patch_size is None:
        return encoder
    size = encoder.image_size
    if options.image_size is not None:
        require(len(options.image_size) in (1, 2), "image_size", options.image_size, "one number, or height and width")
        require(min(options.image_size) >= 1, "image_size", options.image_size, "whole numbers, 1 or more")
        size = (options.image_size[0], options.image_size[-1])
    if options.patch_size is not None:
        require(options.patch_size >= 1, "patch_size", options.patch_size, "a whole number, 1 or more")
        patch = options.patch_size
    else:
        patch = natural_patch(min(size))
    if options.image_size is None:
        size = fitted(size, patch)
    return replace(encoder, image_size=size, patch_size=patch)


def _steps(config: RunConfig, options: PretrainOptions, facts: DataFacts, batch_size: int) -> int:
    require(
        options.epochs is None or options.max_steps is None,
        "epochs",
        options.epochs,
        "either epochs or max_steps, not both",
    )
    require(batch_size >= 1, "batch_size", batch_size, "a whole number, 1 or more")
    if options.max_steps is not None:
        return options.max_steps
    if options.epochs is not None:
        require_number("epochs", options.epochs, 0, 1e7, ends="(]")
        return steps_for(options.epochs, facts.count, batch_size)
    # The recipe counted its steps at its own batch size: keep the number of images seen.
    return max(1, round(config.steps * config.batch_size / batch_size))
