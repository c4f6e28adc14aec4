"""Which command line is equivalent to these options? Only the options that were given."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from echoless.config.addresses import without_secrets
from echoless.config.options.evaluate import EvaluateOptions
from echoless.config.options.fields import AnyPath, flag, positional
from echoless.config.options.finetune import FinetuneOptions
from echoless.config.options.pretrain import PretrainOptions

# These say how a run is started, not what it computes, so they are not part of the command that repeats it.
OF_THE_MOMENT = ("resume", "new_data", "overwrite", "requeue", "wait")


def as_command(verb: str, options: Any) -> str:
    """`echoless VERB WORDS --field VALUE ...`, quoted for a shell; addresses without their secrets."""
    by_position = positional(type(options))
    words = ["echoless", verb, *(word for name in by_position for word in _words(getattr(options, name)))]
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.name not in (*by_position, *OF_THE_MOMENT) and value != field.default:
            words += _spell(field.name, value)
    return shlex.join(words)


def same_sets_command(run: AnyPath, options: PretrainOptions | FinetuneOptions | EvaluateOptions) -> str:
    """The `evaluate` of a run on the training and test set of these options.

    A supervised run is measured so: its training images alone, whose labels it saw, are no test.
    """
    train = options.data if isinstance(options, PretrainOptions) else options.train
    sets = {name: getattr(options, name) for name in ("test", "labels", "test_labels", "classes")}
    return as_command("evaluate", EvaluateOptions(run, train=train, **sets))


def _spell(name: str, value: Any) -> list[str]:
    if isinstance(value, bool):
        return [flag(name if value else f"no_{name}")]
    return [flag(name), *_words(value)]


def _words(value: Any) -> list[str]:
    return [without_secrets(str(item)) for item in (value if isinstance(value, tuple) else (value,))]
