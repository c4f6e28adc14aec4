"""How does `pretrain` go from a path to a trained encoder?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from echoless.config import DataConfig, MaskedConfig, ModelConfig, RunConfig, RuntimeConfig, from_dict, with_body
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions, as_command
from echoless.config.supervised import SupervisedConfig
from echoless.config.training import Precision
from echoless.data import Images, Latents, measure_statistics, open_images
from echoless.data.reading import read_images
from echoless.errors import ConfigError, EcholessError
from echoless.randomness import generator_for
from echoless.recipes.resolve import settle
from echoless.reports.datasheet import show_data
from echoless.runs import RunFolder, check_run, open_run
from echoless.runs.autoencoder import image_channels, require_vae
from echoless.runtime import Progress, StopRequest, Team, join_team, leave_team
from echoless.shortcuts import choose_alpha_min
from echoless.training import Session, build_task, make_trainee, require_source, require_tensorboard, train, warm_start
from echoless.training.about import opening_lines, recorded, run_facts
from echoless.training.latent_space import LatentSpace, encode_all, open_space
from echoless.training.validation import Judge, require_labels

REQUEUE_EXIT_CODE = 75


class Stopped(EcholessError):
    """A signal came before the first step: there was nothing to save."""

    exit_code = 0


def pretrain(data: str | Path, out: str | Path, **options: Any) -> bool:
    """Pretrain on images. The keywords are the fields of `PretrainOptions`. Returns whether the run is complete."""
    return pretrain_with(str(data), Path(out), PretrainOptions(**options))


def pretrain_with(data: str, out: Path, options: PretrainOptions) -> bool:
    """Everything that can be refused is refused before the first image is decoded into the cache."""
    runtime = RuntimeConfig(
        workers=options.workers,
        device=options.device,
        checkpoint_every=options.checkpoint_every,
        snapshot_every=options.snapshot_every,
        log_every=options.log_every,
        strict=options.strict,
        tensorboard=options.tensorboard,
    )
    before = continued(out, options)
    options = options if before is None else _remembered(options, before)
    options = _as_the_autoencoder_sees(options)
    _check_early(options, out, before)
    team = join_team(options.device)
    run = None
    try:
        with StopRequest() as stop:
            with team.together():
                run = open_early(out, options.resume, options.overwrite) if team.leads else None
            images = team.leader_first(lambda: _read(data, options, stop))
            with team.together():
                space = open_space(options, images, team)
            config = _configure(data, options, images, team, before, space)
            judge = _judge(config, options, images, team)
            latents = None if space is None else encode_all(space, images, team, lambda: _heed(stop, "encoding", data))
            with team.together():
                run = open_run(out, overwrite=True) if team.leads and run is None else run
            complete = carry_out(
                config,
                runtime,
                images=images,
                out=out,
                run=run,
                stop=stop,
                team=team,
                resume=options.resume,
                init=options.init,
                command=as_command("pretrain", data, options=options, out=str(out)),
                judge=judge,
                latents=latents,
            )
            if complete and run is not None and judge is not None:
                _add_accuracy(run, judge)
            return complete
    finally:
        if run is not None:
            run.close()
        leave_team()


def continued(out: Path, options: PretrainOptions) -> RunConfig | None:
    """The settings of the run to be resumed; None where there are none yet, or where another kind of run is asked for.

    What equals its default counts as not given.
    """
    before = config_before(out) if options.resume and not options.overwrite else None
    if before is None or options.conditional is not None:
        return None
    return before if options.recipe in ("auto", before.recipe) else None


def config_before(out: Path) -> RunConfig | None:
    """What RUN/config.json says, if anything."""
    if not (out / "config.json").is_file():
        return None
    try:
        return from_dict(RunConfig, RunFolder(out).read_config())
    except EcholessError:  # the checkpoints have it too, and will say what differs
        return None


def _remembered(options: PretrainOptions, before: RunConfig) -> PretrainOptions:
    """The options, with what the run to be resumed knows of its data where nothing else is said."""
    known = before.data
    options = replace(options, labels=options.labels or known.labels, channels=options.channels or known.channels)
    if known.latent is None:
        return options
    size = options.image_size or known.latent.image_size
    return replace(options, latent=options.latent or known.latent.path, image_size=size)


def _as_the_autoencoder_sees(options: PretrainOptions) -> PretrainOptions:
    """Grey images become colour images, or these grey, where an autoencoder will look at them."""
    if options.latent is None:
        return options
    taken = image_channels(require_vae(Path(options.latent)))
    return replace(options, channels=options.channels or taken)


def open_early(out: Path, resume: bool, overwrite: bool) -> RunFolder | None:
    """The run folder; only a look at it where it is to be replaced, because that waits until the data is known good.

    A command with --resume may be its own first start, as schedulers repeat it; but it may also be a mistyped --out.
    """
    if resume and not out.exists():
        note = f"{out} does not exist: there is nothing to resume, and a NEW run starts there"
        print(note, file=sys.stderr, flush=True)
    if overwrite and not resume:
        check_run(out, overwrite=True)
        return None
    return open_run(out, resume=resume, overwrite=overwrite)


def _check_early(options: PretrainOptions, out: Path, before: RunConfig | None) -> None:
    """Settings that are wrong for any data, found without looking at it."""
    given = options if options.latent is None else replace(options, image_size=None)
    # Whether there are labels is known later.
    config = settle(given, DataFacts(3, 64, 64, 1000, classes=10), DataConfig(), before)
    if options.test is not None and not isinstance(config.objective, SupervisedConfig):
        raise ConfigError(f"test is {options.test!r}; allowed: with a supervised recipe, which {config.recipe} is not")
    if options.tensorboard:
        require_tensorboard()
    if options.init is not None and not options.resume:
        require_source(Path(options.init))
        if options.overwrite and Path(options.init).resolve() == out.resolve():
            raise ConfigError(
                f"--init and --out are both {out}, which --overwrite would delete; allowed: another --out"
            )


def _read(data: str, options: PretrainOptions, stop: StopRequest) -> Images:
    with Progress("reading", 1, "images") as progress:

        def show(done: int, total: int) -> None:
            _heed(stop, "reading", data)
            progress.total = total
            progress.show(done)

        return open_images(
            data,
            labels=Path(options.labels) if options.labels else None,
            cache=options.cache,
            channels=options.channels,
            max_bad_fraction=options.max_bad_fraction,
            progress=show,
            say=progress.say,
        )


def _heed(stop: StopRequest, doing: str, data: str) -> None:
    if stop.requested:
        raise Stopped(f"stopped by {stop.requested} while {doing} {data}; nothing had been trained")


def _configure(
    data: str,
    options: PretrainOptions,
    images: Images,
    team: Team,
    before: RunConfig | None = None,
    space: LatentSpace | None = None,
) -> RunConfig:
    """The config with every "auto" resolved: what RUN/config.json will say."""
    statistics = measure_statistics(images)
    accelerated = team.device.type == "cuda"
    facts = DataFacts(*images.shape, images.usable, accelerated=accelerated, classes=_classes(images))
    described = DataConfig(
        path=data,
        labels=options.labels,
        channels=options.channels,
        fingerprint=images.fingerprint,
        count=images.usable,
        mean=statistics.mean,
        std=statistics.std,
    )
    if space is None:
        config = settle(options, facts, described, before)
    else:
        latent = settle(replace(options, image_size=None), space.facts(facts), described, before)
        config = space.told(latent, images.shape.channels)
    config = replace(config, model=with_alpha(config.model))
    if options.precision != "auto" or before is None:
        bf16 = team.device.type == "cuda" and torch.cuda.is_bf16_supported()
        automatic: Precision = "bf16" if bf16 else "fp32"
        config = replace(config, precision=automatic if options.precision == "auto" else options.precision)
    if options.compile is not None or before is None:
        compiled = compilation_pays(config, team) if options.compile is None else options.compile
        config = replace(config, compile=compiled)
    return config


def _judge(config: RunConfig, options: PretrainOptions, images: Images, team: Team) -> Judge | None:
    """Who says how good a classifier is; None where there are no labels in the game, or nothing to test on."""
    if not isinstance(config.objective, SupervisedConfig):
        return None
    test = read_images(options.test, options.test_labels) if options.test else None
    require_labels(images, test, names=("DATA", "--test"))
    return Judge(test, config, team) if test else None


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


def _classes(images: Images) -> int | None:
    """How many classes the images have; None where they are not labelled."""
    if images.labels is None or len(images.labels) == 0 or int(images.labels.max()) < 0:
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


def carry_out(
    config: RunConfig,
    runtime: RuntimeConfig,
    *,
    images: Images,
    out: Path,
    run: RunFolder | None,
    stop: StopRequest,
    team: Team,
    resume: bool = False,
    init: str | None = None,
    judge: Callable[[nn.Module], dict[str, float]] | None = None,
    command: str = "",
    latents: Latents | None = None,
) -> bool:
    """A settled config, trained. `run` is the open folder on rank 0. Returns whether the run is complete."""
    model, objective = build_task(config, generator_for(config.seed, "init", 0))
    started = warm_start(model, Path(init)) if init and not resume else ""
    trainee = make_trainee(config, model, objective, team)
    if run is not None:
        latent = config.data.latent
        show_data(run, images, config.model.image_size if latent is None else latent.image_size)
    facts = run_facts(config, images, model)
    with recorded(run, command, facts, team) as record, Progress("training", config.steps) as progress:
        session = Session(
            trainee=trainee,
            images=images,
            runtime=runtime,
            out=out,
            run=run,
            stop=stop,
            progress=progress,
            judge=judge,
            latents=latents,
            note_speed=None if record is None else record.note_speed,
        )
        for line in opening_lines(facts, images):
            session.say(line)
        if started:
            session.say(started)
        return train(session, resume=resume)
