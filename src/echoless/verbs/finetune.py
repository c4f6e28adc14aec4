"""How does `finetune` go from a frozen encoder to a classifier? The whole network is trained, by He et al. 2022."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from echoless.config import DataConfig, OptimConfig, RunConfig, RuntimeConfig, ViTConfig
from echoless.config.facts import steps_for
from echoless.config.metrics import Metric
from echoless.config.options import FinetuneOptions, as_command
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.data import Images
from echoless.data.reading import read_images
from echoless.runs import open_run
from echoless.runs.open import load_body
from echoless.runtime import StopRequest, join_team, leave_team
from echoless.training.validation import Judge, require_labels
from echoless.verbs.pretrain import carry_out, config_before, open_early


def finetune(source: str | Path, train: str | Path, test: str | Path, out: str | Path, **options: Any) -> Metric | None:
    """Fine-tune an encoder. The keywords are the fields of `FinetuneOptions`. None where the run was stopped."""
    return finetune_with(Path(source), str(train), str(test), Path(out), FinetuneOptions(**options))


def finetune_with(source: Path, train: str, test: str, out: Path, options: FinetuneOptions) -> Metric | None:
    encoder, mean, std = _encoder(source)
    options = _remembered(out, options)
    team = join_team(options.device)
    run = None
    try:
        with StopRequest() as stop:
            with team.together():
                run = open_early(out, options.resume, options.overwrite) if team.leads else None
            images, judged = read_images(train, options.labels), read_images(test, options.test_labels)
            require_labels(images, judged)
            config = _configure(encoder, mean, std, images, train, options)
            with team.together():
                run = open_run(out, overwrite=True) if team.leads and run is None else run
            runtime = RuntimeConfig(
                workers=options.workers, device=options.device, checkpoint_every=options.checkpoint_every
            )
            judge = Judge(judged, config, team)
            complete = carry_out(
                config,
                runtime,
                images=images,
                out=out,
                run=run,
                stop=stop,
                team=team,
                resume=options.resume,
                init=str(source),
                judge=judge,
                command=as_command("finetune", str(source), options=options, train=train, test=test, out=str(out)),
            )
            metric = judge.metric("finetune", layer_decay=config.optim.layer_decay) if complete else None
            if run is not None and metric is not None:
                run.add_results([metric.to_json()])
            return metric
    finally:
        if run is not None:
            run.close()
        leave_team()


_OPTIM = ("base_lr", "layer_decay", "weight_decay", "warmup")
_OBJECTIVE = ("label_smoothing", "mixup", "cutmix", "erase", "drop_path")
_RUN = ("batch_size", "accumulate", "seed", "precision", "compile")


def _remembered(out: Path, options: FinetuneOptions) -> FinetuneOptions:
    """The options, with what the run to be resumed says where they have their defaults."""
    before = config_before(out) if options.resume and not options.overwrite else None
    if before is None or not isinstance(before.model, ClassifierConfig):
        return options
    parts = ((before.optim, _OPTIM), (before.objective, _OBJECTIVE), (before, _RUN))
    known = {name: getattr(part, name) for part, names in parts for name in names}
    known |= {"pooling": before.model.pooling, "labels": before.data.labels}
    if options.epochs is None:
        known["max_steps"] = before.steps
    default = FinetuneOptions()
    missing = {name: value for name, value in known.items() if getattr(options, name) == getattr(default, name)}
    return replace(options, **missing)


def _encoder(source: Path) -> tuple[ViTConfig, tuple[float, ...], tuple[float, ...]]:
    body = load_body(source, kinds=("vit",), use="for finetune")
    return body.config, body.mean, body.std


def _configure(
    encoder: ViTConfig,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    images: Images,
    path: str,
    options: FinetuneOptions,
) -> RunConfig:
    assert images.labels is not None
    batch_size = options.batch_size or min(1024, max(8, images.usable // 8))
    return RunConfig(
        recipe="finetune",
        model=ClassifierConfig(encoder=encoder, classes=max(2, int(images.labels.max()) + 1), pooling=options.pooling),
        objective=SupervisedConfig(
            label_smoothing=options.label_smoothing,
            mixup=options.mixup,
            cutmix=options.cutmix,
            erase=options.erase,
            drop_path=options.drop_path,
        ),
        data=DataConfig(
            path=path,
            labels=options.labels,
            fingerprint=images.fingerprint,
            count=images.usable,
            mean=mean,
            std=std,
            crop_scale=(0.08, 1.0),
        ),
        optim=OptimConfig(
            base_lr=options.base_lr,
            betas=(0.9, 0.999),
            weight_decay=options.weight_decay,
            warmup=options.warmup,
            layer_decay=options.layer_decay,
            clip=None,
        ),
        steps=options.max_steps or steps_for(options.epochs or 100, images.usable, batch_size),
        batch_size=batch_size,
        accumulate=options.accumulate,
        seed=options.seed,
        precision=options.precision,
        compile=options.compile,
    )
