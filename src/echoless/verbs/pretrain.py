"""What does `pretrain` do? Settle what is asked, refuse what cannot be, then train.

The second half, which needs torch, is in `pretraining.py`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from echoless.config import DataConfig, MaskedConfig
from echoless.config.facts import DataFacts
from echoless.config.memory import require_memory_settings
from echoless.config.options import PretrainOptions
from echoless.config.options.fields import filled, given
from echoless.config.supervised import SupervisedConfig
from echoless.config.training import RuntimeConfig
from echoless.errors import ConfigError, RunError
from echoless.recipes.budget import budget_of
from echoless.recipes.continuing import CONTINUE
from echoless.recipes.resolve import resolve
from echoless.verbs.early import require_data, require_labels, require_probe, require_startable, require_test_of
from echoless.verbs.record import Record, read_record, require_found, require_same_start, require_verb, with_remembered
from echoless.verbs.signature import signature_of


@signature_of(PretrainOptions)
def pretrain(options: PretrainOptions) -> bool:
    """Returns whether the run is complete: False where SIGTERM stopped it, with all of its work saved.

    Ctrl-C saves it too, and then raises KeyboardInterrupt.
    """
    require_startable(options.out, resume=options.resume, overwrite=options.overwrite)
    record = read_record(options)
    require_verb("pretrain", options, record)
    require_same_start("init", options.init, record)
    asked = options
    options = _with_recorded_data(with_remembered(options, record), record)
    if options.data is None and options.resume and record is None:
        raise RunError(f"{options.out} holds no run to resume; give its folder as --out, or DATA to start one")
    if options.data is None:
        raise ConfigError("DATA is missing; see echoless pretrain --help")
    options = _with_recipe(options, record)
    _refuse_bad_settings(options, record)
    require_test_of(options.test_labels, options.test)
    require_probe(options)
    require_found(asked, options, record)
    require_data(options.data, options.test, options.probe_data)
    require_labels(options.labels, options.test_labels, options.probe_labels)

    from echoless.verbs.pretraining import run_pretraining

    return run_pretraining(options, record)


def _with_recipe(options: PretrainOptions, record: Record | None) -> PretrainOptions:
    """A run from trained weights continues them, unless another recipe is given."""
    if record is None and options.recipe == CONTINUE and options.init is None:
        raise ConfigError(f"recipe is {CONTINUE!r}, but --init is missing: it continues from trained weights")
    if record is None and options.recipe is None and options.init is not None:
        return replace(options, recipe=CONTINUE)
    return options


def _with_recorded_data(options: PretrainOptions, record: Record | None) -> PretrainOptions:
    """The options, with what the record says of the data where nothing is given."""
    if record is None:
        return options
    data = record.config.data
    known: dict[str, Any] = {"channels": data.channels, "tiles": data.tiles}
    if not record.repeats or options.data in (None, data.path):  # the labels of other images are others
        known |= {"data": data.path, "labels": data.labels, "classes": data.classes}
    if data.latent is not None:
        known |= {"latent": data.latent.path, "image_size": data.latent.image_size}
        known |= {"latent_precision": data.latent.precision}
    return filled(options, known)


def _refuse_bad_settings(options: PretrainOptions, record: Record | None) -> None:
    """Settings that are wrong for any data, found without looking at it."""
    # The patch size comes from the autoencoder or from the weights of --init, so that the image size is checked later.
    unknown = options.latent is not None or options.init is not None
    settings = replace(options, image_size=None) if unknown else options
    channels = len(options.mean or options.std or (0,) * 3)  # those of the images are known later, as are labels
    facts = DataFacts(channels, 64, 64, 1000, classes=10)
    if settings.image_size is None and (settings.patch_size or 0) > facts.height:
        settings = replace(settings, patch_size=None)  # the images may be large enough for it
    config = resolve(settings, facts, DataConfig(), record.config if record else None)
    budget_of(options, accelerated=False, record=record.config if record else None)
    if record is not None or options.recipe not in (None, "auto"):  # auto depends on the machine
        require_memory_settings(config, RuntimeConfig(**given(options, "shard", "checkpoint_activations")))
    if options.time is not None and not isinstance(config.objective, MaskedConfig):
        raise ConfigError(
            f"time is {options.time!r}, but recipe {config.recipe} is no masked autoencoder; give --epochs"
        )
    if options.latent_precision is not None and options.latent is None:
        raise ConfigError(
            f"latent_precision is {options.latent_precision!r}, but there are no latents without --latent"
        )
    if options.test is not None and not isinstance(config.objective, SupervisedConfig):
        raise ConfigError(f"test is {str(options.test)!r}, but recipe {config.recipe} is not supervised")
    if options.init is not None and options.overwrite and Path(options.init).resolve() == Path(options.out).resolve():
        raise ConfigError(
            f"--init and --out are both {options.out}, which --overwrite would delete; give another --out"
        )
