"""How does `pretrain` go from a path to a trained encoder? Read the images, settle the config, train."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from echoless.config import DataConfig, MaskedConfig, ModelConfig, RunConfig, RuntimeConfig, with_body
from echoless.config.addresses import without_secrets
from echoless.config.checks import require
from echoless.config.facts import DataFacts, StartFacts
from echoless.config.memory import require_memory_settings
from echoless.config.options import PretrainOptions, as_command
from echoless.config.options.fields import given
from echoless.config.options.remembered import Remembered
from echoless.config.supervised import SupervisedConfig
from echoless.config.training import Precision
from echoless.data import Images, Latents, measure_statistics, open_images
from echoless.data.rand_augment import require_rand_augment
from echoless.data.reading import natural_filter, read_images, require_channels, training_reduction
from echoless.data.resizing import BY_SIZE, Fit
from echoless.data.survey import Survey
from echoless.errors import INTERRUPTED, REQUEUE, ConfigError, EcholessError
from echoless.recipes.budget import budget_of, measuring_limit, unfitted
from echoless.recipes.resolve import resolve
from echoless.reports.datasheet import show_data
from echoless.runs import RunFolder
from echoless.runs.autoencoder import image_channels, require_vae
from echoless.runtime import Progress, Share, Team
from echoless.shortcuts import choose_alpha_min
from echoless.training import require_trackers
from echoless.training.latent_space import LatentSpace, encode_all, latent_image_size, open_space
from echoless.training.launch import Launch, Workplace, common_share, launch, workplace
from echoless.training.timing import measure_speed
from echoless.training.validation import Judge, judge_on, require_labels
from echoless.verbs.planning import Time, make_plan
from echoless.verbs.probing import open_probe
from echoless.verbs.record import Record
from echoless.verbs.starting import facts_of_start, open_start, with_channels_of

_ROOM_FOR_CROPS = 3
RUNTIME = (
    *("workers", "device", "checkpoint_every", "snapshot_every", "snapshots", "log_every", "strict"),
    *("track", "probe_every", "shard", "checkpoint_activations"),
)


class Stopped(EcholessError):
    """A signal came before the first step: there was nothing to save."""

    def __init__(self, text: str, *, requeue: bool) -> None:
        super().__init__(text)
        self.exit_code = REQUEUE if requeue else INTERRUPTED


def run_pretraining(options: PretrainOptions, record: Record | None) -> bool:
    """Everything that can be refused is refused before the first image is decoded into the cache."""
    started = time.monotonic()
    runtime = RuntimeConfig(**given(options, *RUNTIME))
    recorded = record.config if record else None
    _require_ready(options)
    opened = open_start(options)
    start = facts_of_start(opened, recorded)
    options = with_channels_of(_with_channels_of_autoencoder(options), start)
    kept = {"resume": options.resume, "overwrite": options.overwrite, "wait": options.wait}
    with workplace(Path(options.out), runtime.device, **kept) as place:
        _require_length(options, runtime, place.team, recorded)
        share = common_share(place.team)
        with place.team.together():
            images = _read(options, place, recorded, start, share)
        place.team.require_same("images", images.identity)
        with place.team.together():
            space = open_space(options, images, place.team)
        config, plan = _planned(options, images, place, recorded, space, start, started)
        require_memory_settings(config, runtime)
        judge = _judge(config, options, images, place.team, share)
        probe = open_probe(options, config, str(place.team.device), images) if place.team.leads else None
        latents = _encode(space, images, place, options, share)
        size = space.config.image_size if space else config.model.image_size
        job = Launch(
            config=config,
            runtime=runtime,
            images=images,
            place=place,
            resume=options.resume,
            init=options.init,
            start=opened if opened and opened.foreign else None,
            judge=judge,
            probe=probe,
            command=as_command("pretrain", options),
            show_data=lambda run: show_data(run, images, size),
            remembered=Remembered.of(options).to_json(),
            latents=latents,
            notes=plan,
        )
        complete = launch(job)
        if complete and place.run is not None and judge is not None:
            _add_accuracy(place.run, judge)
        return complete


def _require_length(options: PretrainOptions, runtime: RuntimeConfig, team: Team, record: RunConfig | None) -> None:
    """A sharded run has a given length: speed is measured by one process, which may not hold the model."""
    if runtime.shard and budget_of(options, accelerated=team.accelerated, record=record) is not None:
        wanted = f"time is {options.time!r}" if options.time else "recipe auto fits the run into a time"
        raise ConfigError(f"{wanted}, which --shard cannot measure; give a --recipe and --epochs or --max-steps")


def _planned(
    options: PretrainOptions,
    images: Images,
    place: Workplace,
    record: RunConfig | None,
    space: LatentSpace | None,
    start: StartFacts | None,
    started: float,
) -> tuple[RunConfig, tuple[str, ...]]:
    """`configure`, after a few steps were timed where the length of the run depends on the speed."""
    team = place.team
    seconds = budget_of(options, accelerated=team.accelerated, record=record)
    if seconds is None or space is not None:
        note = unfitted(options, accelerated=team.accelerated, record=record)
        return configure(options, images, team, record, space, start), (note,) if note else ()
    if team.leads:
        print("measuring the speed of a few steps ...", file=sys.stderr, flush=True)
    workers = RuntimeConfig(**given(options, "workers")).workers

    def check() -> None:
        _stop_here(place, options)

    def spent() -> float:
        return team.maximum(time.monotonic() - started)[0]

    plan = make_plan(
        options,
        Time(seconds, spent),
        facts_of(images, team),
        lambda wanted: configure(wanted, images, team, start=start),
        lambda config: measure_speed(config, images, team, workers, limit=measuring_limit(seconds), check=check),
    )
    config = configure(plan.options, images, team, start=start)
    return replace(config, recipe=options.recipe or "auto", budget=plan.budget), plan.sentences


def _with_channels_of_autoencoder(options: PretrainOptions) -> PretrainOptions:
    """Images are converted to the channels that the autoencoder takes, grey or colour."""
    if options.latent is None or options.channels is not None:
        return options
    return replace(options, channels=image_channels(require_vae(Path(options.latent))))


def _require_ready(options: PretrainOptions) -> None:
    """What the settings need besides the data."""
    require_trackers(options.track or ())


def _read(
    options: PretrainOptions, place: Workplace, record: RunConfig | None, start: StartFacts | None, share: Share
) -> Images:
    accelerated, speaks = place.team.accelerated, share.index == 0
    with Progress("reading", 1, "images") as progress:

        def show(done: int, total: int) -> None:
            _stop_here(place, options)
            progress.total = total
            if speaks:
                progress.show(done)

        images = open_images(
            str(options.data),
            labels=Path(options.labels) if options.labels else None,
            classes=options.classes,
            progress=show,
            say=progress.say if speaks else None,
            share=share,
            reduction=lambda survey, count: _reduction(options, record, survey, count, accelerated, start),
            **given(options, "cache", "channels", "max_bad_fraction", "tiles"),
        )
    has = images.shape.channels
    only = f"{has} with {without_secrets(str(options.data))}, whose pixels are not decoded from image files"
    require(options.channels in (None, has), "channels", options.channels, only)
    return images


def _reduction(
    options: PretrainOptions,
    record: RunConfig | None,
    survey: Survey,
    count: int,
    accelerated: bool,
    start: StartFacts | None,
) -> Fit | None:
    """At what size larger images are kept: as recorded, as given, or as the recipe has it for images like these."""
    if record is not None and options.cache_side is None:
        size = record.model.image_size if record.data.latent is None else record.data.latent.image_size
        return training_reduction(record.data, size)
    height, width = survey.file_shape
    facts = DataFacts(survey.shape.channels, height, width, count, accelerated=accelerated, classes=2)
    if options.latent is not None:
        size = latent_image_size(options, facts)
        data = DataConfig(crop_scale=None, cache_side=options.cache_side or max(size))
    else:
        config = resolve(options, facts, DataConfig(), record, start)
        size, data = config.model.image_size, settled_side(config)
    return training_reduction(data, size)


def _encode(
    space: LatentSpace | None, images: Images, place: Workplace, options: PretrainOptions, share: Share
) -> Latents | None:
    if space is None:
        return None
    return encode_all(space, images, place.team, share, lambda: _stop_here(place, options))


def _stop_here(place: Workplace, options: PretrainOptions) -> None:
    """End the run where a signal, or another process, asked for it before training began."""
    if place.stop.requested:
        data = without_secrets(str(options.data))
        text = f"stopped by {place.stop.requested} while preparing {data}; nothing had been trained"
        raise Stopped(text, requeue=options.requeue)
    place.team.check()


def configure(
    options: PretrainOptions,
    images: Images,
    team: Team,
    record: RunConfig | None = None,
    space: LatentSpace | None = None,
    start: StartFacts | None = None,
) -> RunConfig:
    """The config with every "auto" resolved: what RUN/config.json will say."""
    statistics = measure_statistics(images)
    facts = facts_of(images, team)
    data = DataConfig(
        path=without_secrets(str(options.data)),
        labels=str(options.labels) if options.labels else None,
        classes=str(options.classes) if options.classes else None,
        channels=options.channels,
        fingerprint=images.fingerprint,
        count=images.usable,
        mean=statistics.mean,
        std=statistics.std,
        interpolation=natural_filter(images) if record is None else record.data.interpolation,
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
        config = replace(config, precision=_precision(options, team))
    if options.compile is not None or record is None:
        compiled = compilation_pays(config, team) if options.compile is None else options.compile
        config = replace(config, compile=compiled)
    return config


def facts_of(images: Images, team: Team) -> DataFacts:
    """What a recipe may know."""
    accelerated, shape = team.accelerated, (images.shape.channels, *images.typical_size)
    return DataFacts(*shape, images.usable, accelerated=accelerated, classes=_count_classes(images))


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


def _precision(options: PretrainOptions, team: Team) -> Precision:
    if options.precision is not None and options.precision != "auto":
        return options.precision
    return "bf16" if team.device.type == "cuda" and torch.cuda.is_bf16_supported() else "fp32"


def _judge(config: RunConfig, options: PretrainOptions, images: Images, team: Team, share: Share) -> Judge | None:
    """What measures the accuracy of a classifier after every epoch; None without labels, or without --test."""
    if not isinstance(config.objective, SupervisedConfig):
        return None
    labels = str(options.test_labels) if options.test_labels else None
    channels = images.shape.channels
    small = BY_SIZE.reduction(config.model.image_size)
    read = partial(read_images, str(options.test), labels, channels, reduction=small, tiles=options.tiles)
    with team.together():
        classes = str(options.classes) if options.classes else None
        test = read(classes=classes, share=share, which="--test", like=images) if options.test else None
    require_labels(images, test, names=("DATA", "--test"))
    if test is None:
        return None
    require_channels(test, channels, "--test")
    return judge_on(images, test, (str(options.data), str(options.test)), config, team)


def _add_accuracy(run: RunFolder, judge: Judge) -> None:
    body: Any = judge.config.model.body
    start = getattr(body, "init_scheme", "default")
    alpha_min = body.shortcuts.alpha_min if body.shortcuts.variant == "faded" else None
    protocol = {"variant": body.shortcuts.variant, "alpha_min": alpha_min, "start": start, "blocks": body.blocks}
    metric = judge.metric("accuracy", **protocol, optimizer=judge.config.optim.name)
    if metric is not None:
        run.add_results([metric.to_json()])
        run.log(str(metric))
        print(metric)


def _count_classes(images: Images) -> int | None:
    """None where the images are not labelled, or not all of them."""
    if images.labels is None or len(images.labels) == 0 or int(images.labels.min()) < 0:
        return None
    return int(images.labels.max()) + 1


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
