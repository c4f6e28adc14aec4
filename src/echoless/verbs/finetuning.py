"""How does `finetune` go from a frozen encoder to a classifier? The whole network is trained, by He et al. 2022."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from echoless.config import RunConfig, RuntimeConfig, ViTConfig, with_body
from echoless.config.facts import steps_for
from echoless.config.memory import require_memory_settings
from echoless.config.metrics import Metric
from echoless.config.options import FinetuneOptions, as_command, same_sets_command
from echoless.config.options.fields import AnyPath, given, path_text
from echoless.config.options.remembered import Remembered
from echoless.config.supervised import ClassifierConfig
from echoless.data import Images
from echoless.data.rand_augment import allows_rand_augment, require_rand_augment
from echoless.data.reading import leave_out_unlabelled, read_images, training_reduction
from echoless.data.resizing import BY_SIZE, Fit
from echoless.recipes.finetuning import finetuning
from echoless.reports.datasheet import show_data
from echoless.runs.open import Start
from echoless.runtime import Share, Team
from echoless.training import require_trackers
from echoless.training.launch import Launch, common_share, launch, workplace
from echoless.training.room import require_memory
from echoless.training.validation import judge_on, require_labels
from echoless.verbs.configuring import described_data
from echoless.verbs.record import Record, require_same_images
from echoless.verbs.starting import open_encoder, taught_before

OPTIM = ("base_lr", "layer_decay", "weight_decay", "warmup", "min_lr")
OBJECTIVE = ("label_smoothing", "mixup", "cutmix", "erase", "drop_path")
RUN = ("accumulate", "seed", "precision", "compile")
RUNTIME = ("workers", "device", "checkpoint_every", "track", "shard", "checkpoint_activations")


def run_finetuning(options: FinetuneOptions, record: Record | None) -> Metric | None:
    """Everything that can be refused is refused before an old run is replaced."""
    runtime = RuntimeConfig(**given(options, *RUNTIME))
    require_trackers(runtime.track)
    source = read_source(Path(options.run))
    kept = {"resume": options.resume, "overwrite": options.overwrite}
    with workplace(Path(options.out), runtime.device, **kept) as place:
        channels, recorded = source.encoder.channels, record.config if record else None
        crops = None if recorded is None else training_reduction(recorded.data, source.encoder.image_size)
        whole = BY_SIZE.reduction(source.encoder.image_size)
        share = common_share(place.team)
        with place.team.together():
            _refuse_large_batch(options, source, recorded, place.team)
            read = partial(_read, options, channels=channels, share=share)
            images = read(options.train, options.labels, what="--train", reduction=crops)
            require_same_images("train", options, images, record)
            test = read(options.test, options.test_labels, what="--test", reduction=whole, like=images)
        for flag, each, use in (("--train", images, "training"), ("--test", test, "testing")):
            if (sentence := leave_out_unlabelled(each, use)) and place.team.leads:
                print(f"{flag}: {sentence}", file=sys.stderr, flush=True)
        place.team.require_same("images", images.identity + test.identity)
        require_labels(images, test)
        config = configure(options, source, images, recorded)
        require_memory_settings(config, runtime)
        require_memory(config, place.team, recompute=runtime.checkpoint_activations)
        size = config.model.image_size
        names, taught = (str(options.train), str(options.test)), taught_before(options.run, options, images, test)
        judge = judge_on(images, test, names, config, place.team, taught)
        job = Launch(
            config=config,
            runtime=runtime,
            images=images,
            place=place,
            resume=options.resume,
            init=options.run,
            start=source.start if source.start and source.start.foreign else None,
            taught=taught,
            judge=judge,
            command=as_command("finetune", options),
            show_data=lambda run: show_data(run, images, size),
            remembered=Remembered.of(options, init=options.run).to_json(),
            measured_by=same_sets_command(options.out, options),
        )
        metric = judge.metric("finetune", layer_decay=config.optim.layer_decay) if launch(job) else None
        if place.run is not None and metric is not None:
            place.run.add_results([metric.to_json()])
        return metric


def _refuse_large_batch(options: FinetuneOptions, source: Source, record: RunConfig | None, team: Team) -> None:
    """Before images are read for it. A batch that is neither given nor recorded depends on their number."""
    if record is None and options.batch_size is None:
        return
    base = finetuning(source.encoder.depth, 1, rand_augment=False) if record is None else record
    config = replace(base, model=with_body(base.model, source.encoder), **given(options, *RUN, "batch_size"))
    require_memory(config, team, recompute=bool(options.checkpoint_activations))


def _read(
    options: FinetuneOptions,
    data: AnyPath,
    labels: AnyPath | None,
    *,
    channels: int,
    what: str,
    reduction: Fit | None,
    share: Share,
    like: Images | None = None,
) -> Images:
    return read_images(
        str(data),
        path_text(labels),
        channels,
        classes=path_text(options.classes),
        reduction=reduction,
        share=share,
        which=what if what == "--test" else None,
        like=like,
        needed=True,
    )


@dataclass(frozen=True)
class Source:
    """The encoder to start from, at the size of its images, and the statistics its pixels are normalised by."""

    encoder: ViTConfig
    mean: tuple[float, ...]
    std: tuple[float, ...]
    start: Start | None = None  # the same, opened


def read_source(path: Path) -> Source:
    start = open_encoder(path, use="for finetune")
    body = start.body
    size = start.image_size or body.config.image_size
    return Source(replace(body.config, image_size=size), body.mean, body.std, start)


def configure(options: FinetuneOptions, source: Source, images: Images, record: RunConfig | None) -> RunConfig:
    """The config of the run to be resumed, else that of He et al. 2022, changed where the user gave a value."""
    published = finetuning(source.encoder.depth, images.usable, rand_augment=allows_rand_augment(images))
    base = published if record is None else record
    assert images.labels is not None and isinstance(base.model, ClassifierConfig)
    data = replace(
        described_data(str(options.train), options, images, record),
        label_fingerprint=images.label_fingerprint,
        mean=source.mean,
        std=source.std,
        crop_scale=(0.08, 1.0),
        cache_side="original" if record is None else record.data.cache_side,
    )
    # One norm: the head's own, after the pooling. Runs of earlier versions kept the encoder's too.
    kept = record is not None and getattr(base.model.encoder, "final_norm", False)
    encoder = replace(source.encoder, final_norm=kept)
    classes = max(2, int(images.labels.max()) + 1)
    config = replace(
        base,
        model=replace(base.model, encoder=encoder, classes=classes, **given(options, "pooling")),
        objective=replace(base.objective, **_objective(options)),  # type: ignore[type-var]
        data=data,
        optim=replace(base.optim, **given(options, *OPTIM)),
        **given(options, *RUN, "batch_size"),
    )
    require_rand_augment(getattr(config.objective, "rand_augment", None), images)
    return replace(config, steps=_steps(options, config, images, base))


def _objective(options: FinetuneOptions) -> dict[str, Any]:
    settings = given(options, *OBJECTIVE)
    if options.rand_augment is not None:
        settings["rand_augment"] = options.rand_augment or None
    return settings


def _steps(options: FinetuneOptions, config: RunConfig, images: Images, base: RunConfig) -> int:
    if options.max_steps is not None:
        return options.max_steps
    if options.epochs is not None:
        return steps_for(options.epochs, images.usable, config.batch_size)
    # Another batch size sees as many images.
    return max(1, round(base.steps * base.batch_size / config.batch_size))
