"""How do options and images become the config of a run? Every "auto" is resolved: RUN/config.json says the result."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from echoless.config import DataConfig, MaskedConfig, ModelConfig, RunConfig, with_body
from echoless.config.addresses import without_secrets
from echoless.config.facts import DataFacts, StartFacts
from echoless.config.options import FinetuneOptions, PretrainOptions
from echoless.config.options.fields import path_text
from echoless.config.training import Precision
from echoless.data import Images, measure_statistics
from echoless.data.rand_augment import require_rand_augment
from echoless.data.reading import natural_filter
from echoless.recipes.resolve import resolve
from echoless.runtime import Team
from echoless.shortcuts import choose_alpha_min
from echoless.training.latent_space import LatentSpace
from echoless.training.room import require_memory

_ROOM_FOR_CROPS = 3


def configure(
    options: PretrainOptions,
    images: Images,
    team: Team,
    record: RunConfig | None = None,
    space: LatentSpace | None = None,
    start: StartFacts | None = None,
) -> RunConfig:
    """Of a pretraining: the config of the run to be resumed, else the recipe's, for these images and options."""
    statistics = measure_statistics(images)
    facts = facts_of(images, team)
    data = replace(
        described_data(str(options.data), options, images, record),
        channels=options.channels,
        mean=statistics.mean,
        std=statistics.std,
        tiles=options.tiles,
    )
    if space is None:
        config = resolve(options, facts, data, record, start)
    else:
        config = resolve(replace(options, image_size=None), space.facts(facts), data, record)
        config = space.configured(config, images.shape.channels)
    require_rand_augment(getattr(config.objective, "rand_augment", None), images)
    config = replace(config, model=with_alpha(config.model))
    if record is None:
        config = replace(config, data=settled_side(config))
    if getattr(config.model, "classes", None) is not None:
        config = replace(config, data=replace(config.data, label_fingerprint=images.label_fingerprint))
    if options.precision is not None or record is None:
        config = replace(config, precision=precision_of(options, team))
    if options.compile is not None or record is None:
        compiled = compilation_pays(config, team) if options.compile is None else options.compile
        config = replace(config, compile=compiled)
    require_memory(config, team, recompute=bool(options.checkpoint_activations))
    return config


def described_data(
    path: str, options: PretrainOptions | FinetuneOptions, images: Images, record: RunConfig | None
) -> DataConfig:
    """Which images a run is trained on; how they reach the model is the verb's to add."""
    return DataConfig(
        path=without_secrets(path),
        labels=path_text(options.labels),
        classes=path_text(options.classes),
        fingerprint=images.fingerprint,
        count=images.usable,
        interpolation=natural_filter(images) if record is None else record.data.interpolation,
    )


def facts_of(images: Images, team: Team) -> DataFacts:
    """What a recipe may know."""
    height, width = images.typical_size
    return DataFacts(
        images.shape.channels,
        height,
        width,
        images.usable,
        accelerated=team.accelerated,
        classes=_count_classes(images),
        bits=images.bits,
    )


def _count_classes(images: Images) -> int | None:
    """None where the images are not labelled, or not all of them."""
    if images.labels is None or len(images.labels) == 0 or int(images.labels.min()) < 0:
        return None
    return int(images.labels.max()) + 1


def settled_side(config: RunConfig) -> DataConfig:
    """The data's config, with a size at which larger images are kept.

    What the user or the recipe says; else the input size of a diffusion model, which sees no other crop, and three
    times the input size for random crops: no crop of the usual scale is enlarged then.
    """
    data = config.data
    if data.cache_side is not None:
        return data
    side = max(config.model.image_size if data.latent is None else data.latent.image_size)
    return replace(data, cache_side=side if data.crop_scale is None else _ROOM_FOR_CROPS * side)


def precision_of(options: PretrainOptions, team: Team) -> Precision:
    if options.precision is not None and options.precision != "auto":
        return options.precision
    return "bf16" if team.device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def with_alpha(model: ModelConfig) -> ModelConfig:
    """The model with a number for alpha_min."""
    body: Any = model.body
    shortcuts = body.shortcuts
    if shortcuts.alpha_min != "auto":
        return model
    chosen = choose_alpha_min(**body.fades_over, schedule=shortcuts.schedule, per=shortcuts.per, fade=shortcuts.fade)
    return with_body(model, replace(body, shortcuts=replace(shortcuts, alpha_min=chosen.alpha_min)))


def compilation_pays(config: RunConfig, team: Team) -> bool:
    """On a GPU, from about twenty minutes of work on. On CPUs it was measured to gain nothing (docs/results.md)."""
    if team.device.type != "cuda":
        return False
    shown = 1 - config.objective.mask_ratio if isinstance(config.objective, MaskedConfig) else 1
    per_image = 6 * shown * config.model.body.multiplications
    speed = 5e13  # FLOP/s, within a factor of two or three
    return per_image * config.batch_size * config.steps / speed > 1200
