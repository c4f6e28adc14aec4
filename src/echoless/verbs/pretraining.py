"""How does `pretrain` go from a path to a trained encoder? Read the images, settle the config, train."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from echoless.config import DataConfig, RunConfig, RuntimeConfig
from echoless.config.addresses import without_secrets
from echoless.config.facts import DataFacts, StartFacts
from echoless.config.memory import require_memory_settings
from echoless.config.options import PretrainOptions, as_command, same_sets_command
from echoless.config.options.fields import given, path_text
from echoless.config.options.remembered import Remembered
from echoless.config.supervised import SupervisedConfig
from echoless.data import Images, open_images
from echoless.data.reading import read_images, require_channels, require_classes, training_reduction
from echoless.data.resizing import BY_SIZE, Fit
from echoless.data.survey import Survey
from echoless.errors import INTERRUPTED, REQUEUE, ConfigError, DataError, EcholessError, NoMemory
from echoless.recipes.budget import budget_of, measuring_limit, unfitted
from echoless.recipes.resolve import resolve
from echoless.reports.datasheet import show_data
from echoless.runs import RunFolder
from echoless.runs.autoencoder import image_channels, require_vae
from echoless.runtime import Progress, Share, Team
from echoless.training import require_trackers
from echoless.training.latent_space import LatentSpace, encode_all, latent_image_size, open_space
from echoless.training.launch import Launch, Workplace, common_share, launch, workplace
from echoless.training.room import require_memory
from echoless.training.timing import measure_speed
from echoless.training.validation import Judge, judge_on, require_labels
from echoless.verbs.configuring import configure, facts_of, precision_of, settled_side
from echoless.verbs.planning import Time, make_plan, smallest
from echoless.verbs.probing import open_probe
from echoless.verbs.record import Record, require_same_images
from echoless.verbs.starting import facts_of_start, open_start, taught_before, with_channels_of

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
    require_trackers(runtime.track)
    opened = open_start(options)
    start = facts_of_start(opened, recorded)
    options = with_channels_of(_with_channels_of_autoencoder(options), start)
    kept = {"resume": options.resume, "overwrite": options.overwrite, "wait": options.wait}
    with workplace(Path(options.out), runtime.device, **kept) as place:
        team = place.team
        _require_length(options, runtime, team, recorded)
        request = Request(options, recorded, start, place, common_share(team), started)
        with team.together():
            images = request.images()
            require_same_images("data", options, images, record)
        team.require_same("images", images.identity)
        with team.together():
            space = open_space(options, images, team)
        config, plan = request.plan(images, space)
        require_memory_settings(config, runtime)
        test = request.test_images(config, images)
        taught = taught_before(options.init, options, images, test)
        names = str(options.data), str(options.test)
        judge = None if test is None else judge_on(images, test, names, config, team, taught)
        probe = open_probe(options, config, str(team.device), images) if team.leads else None
        latents = encode_all(space, images, team, request.share, request.stop_here) if space else None
        size = space.config.image_size if space else config.model.image_size
        job = Launch(
            config=config,
            runtime=runtime,
            images=images,
            place=place,
            resume=options.resume,
            init=options.init,
            start=opened if opened and opened.foreign else None,
            taught=taught,
            judge=judge,
            probe=probe,
            command=as_command("pretrain", options),
            show_data=lambda run: show_data(run, images, size),
            remembered=Remembered.of(options).to_json(),
            latents=latents,
            measured_by="" if judge is None else same_sets_command(options.out, options),
            notes=plan,
        )
        complete = launch(job)
        if complete and place.run is not None and judge is not None:
            _add_accuracy(place.run, judge)
        return complete


def _with_channels_of_autoencoder(options: PretrainOptions) -> PretrainOptions:
    """Images are converted to the channels that the autoencoder takes, grey or colour."""
    if options.latent is None or options.channels is not None:
        return options
    return replace(options, channels=image_channels(require_vae(Path(options.latent))))


def _require_length(options: PretrainOptions, runtime: RuntimeConfig, team: Team, record: RunConfig | None) -> None:
    """A sharded run has a given length: speed is measured by one process, which may not hold the model."""
    if runtime.shard and budget_of(options, accelerated=team.accelerated, record=record) is not None:
        wanted = f"time is {options.time!r}" if options.time else "recipe auto fits the run into a time"
        raise ConfigError(f"{wanted}, which --shard cannot measure; give a --recipe and --epochs or --max-steps")


@dataclass(frozen=True)
class Request:
    """What a run was asked to be and where it takes place: enough to read its images and to settle its config.

    `record` is the config of a run being resumed, `start` what is known of foreign weights; `started` is when the
    command began, by the monotonic clock.
    """

    options: PretrainOptions
    record: RunConfig | None
    start: StartFacts | None
    place: Workplace
    share: Share
    started: float

    def images(self) -> Images:
        options, speaks = self.options, self.share.index == 0
        with Progress("reading", 1, "images") as progress:

            def show(done: int, total: int) -> None:
                self.stop_here()
                progress.total = total
                if speaks:
                    progress.show(done)

            images = open_images(
                str(options.data),
                labels=Path(options.labels) if options.labels else None,
                classes=options.classes,
                progress=show,
                say=progress.say if speaks else None,
                share=self.share,
                reduction=self.reduction,
                **given(options, "cache", "channels", "max_bad_fraction", "tiles"),
            )
        if self.record is not None:
            _require_fit(images, self.record)
        elif images.usable == 1:
            raise DataError(
                f"{without_secrets(str(options.data))} has one image that can be used, from which no encoder learns; "
                "give a folder of images, or --tiles SIDE to cut a large one"
            )
        return images

    def reduction(self, survey: Survey, count: int) -> Fit | None:
        """At what size larger images are kept: as recorded, as given, or as the recipe has it for images like these."""
        options, record = self.options, self.record
        if record is not None and options.cache_side is None:
            size = record.model.image_size if record.data.latent is None else record.data.latent.image_size
            return training_reduction(record.data, size)
        accelerated = self.place.team.accelerated
        facts = DataFacts(survey.shape.channels, *survey.file_shape, count, accelerated=accelerated, classes=2)
        if options.latent is not None:
            size = latent_image_size(options, facts)
            data = DataConfig(crop_scale=None, cache_side=options.cache_side or max(size))
        else:
            config = resolve(options, facts, DataConfig(), record, self.start)
            self._refuse_large_batch(facts)
            size, data = config.model.image_size, settled_side(config)
        return training_reduction(data, size)

    def _refuse_large_batch(self, facts: DataFacts) -> None:
        """Before images are decoded for it; `configure` asks again, of sets that need no decoding."""
        options, team = self.options, self.place.team
        planned = budget_of(options, accelerated=team.accelerated, record=self.record) is not None
        wanted = smallest(options, facts) if planned else options
        config = resolve(wanted, facts, DataConfig(), self.record, self.start)
        if self.record is None:
            compiled = team.accelerated if options.compile is None else options.compile  # it keeps less, if it pays
            config = replace(config, precision=precision_of(options, team), compile=compiled)
        require_memory(config, team, recompute=bool(options.checkpoint_activations))

    def plan(self, images: Images, space: LatentSpace | None) -> tuple[RunConfig, tuple[str, ...]]:
        """The config, and what to say of it; a few steps are timed where the length depends on the speed."""
        options, team = self.options, self.place.team
        seconds = budget_of(options, accelerated=team.accelerated, record=self.record)
        if seconds is None or space is not None:
            note = unfitted(options, accelerated=team.accelerated, record=self.record)
            return configure(options, images, team, self.record, space, self.start), (note,) if note else ()
        if team.leads:
            print("measuring the speed of a few steps ...", file=sys.stderr, flush=True)
        workers = RuntimeConfig(**given(options, "workers")).workers
        limit = measuring_limit(seconds)
        plan = make_plan(
            options,
            Time(seconds, spent=lambda: team.maximum(time.monotonic() - self.started)[0]),
            facts_of(images, team),
            lambda wanted: self._configured(wanted, images),
            lambda config: measure_speed(config, images, team, workers, limit=limit, check=self.stop_here),
        )
        config = configure(plan.options, images, team, start=self.start)
        return replace(config, recipe=options.recipe or "auto", budget=plan.budget), plan.sentences

    def _configured(self, wanted: PretrainOptions, images: Images) -> RunConfig:
        """In all processes or in none: where one of them has no memory for it, the others do not measure it either."""
        team = self.place.team
        try:
            config = configure(wanted, images, team, start=self.start)
        except NoMemory:
            team.maximum(1.0)
            raise
        if team.maximum(0.0) == [1.0]:
            raise NoMemory(f"another process of this run has no memory for a batch of {config.batch_size} images")
        return config

    def test_images(self, config: RunConfig, images: Images) -> Images | None:
        """Those on which a classifier is tested after every epoch; None without labels, or without --test."""
        if not isinstance(config.objective, SupervisedConfig):
            return None
        with self.place.team.together():
            test = self._read_test(config, images) if self.options.test else None
        require_labels(images, test, names=("DATA", "--test"))
        return test

    def _read_test(self, config: RunConfig, images: Images) -> Images:
        return read_images(
            str(self.options.test),
            path_text(self.options.test_labels),
            images.shape.channels,
            classes=path_text(self.options.classes),
            reduction=BY_SIZE.reduction(config.model.image_size),
            tiles=self.options.tiles,
            share=self.share,
            which="--test",
            like=images,
            needed=True,
        )

    def stop_here(self) -> None:
        """End the run where a signal, or another process, asked for it before training began."""
        if self.place.stop.requested:
            data = without_secrets(str(self.options.data))
            text = f"stopped by {self.place.stop.requested} while preparing {data}; nothing had been trained"
            raise Stopped(text, requeue=self.options.requeue)
        self.place.team.check()


def _require_fit(images: Images, record: RunConfig) -> None:
    """The model is as recorded: what it cannot take is refused before anything is written."""
    if record.data.latent is None:
        require_channels(images, record.model.body.channels, "DATA")
    require_classes(images, getattr(record.model, "classes", None), "DATA")


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
