"""`echoless finetune RUN --train DATA --test DATA --out DIR`"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from echoless.cli.parsing import parse
from echoless.config.options import FinetuneOptions


@dataclass(frozen=True, kw_only=True)
class Finetune:
    """Train the whole network on labels, starting from a pretrained encoder (He et al. 2022).

    Layer-wise learning rates, drop path, mixup and cutmix, label smoothing, random erasing. Accuracy on --test after
    every epoch goes to metrics.jsonl, the final one with its interval to results.json.
    """

    run: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="RUN")]
    """A complete run, or an encoder folder."""
    train: str
    """Labelled images to learn from."""
    test: str
    """Labelled images to be judged on."""
    out: Path
    """The run folder to create."""
    options: tyro.conf.OmitArgPrefixes[FinetuneOptions] = field(default_factory=FinetuneOptions)


def run(arguments: Sequence[str]) -> int:
    command = parse(Finetune, arguments, "echoless finetune")
    from echoless.verbs.finetune import finetune_with

    metric = finetune_with(command.run, command.train, command.test, command.out, command.options)
    if metric is not None:
        print(metric)
    return 0
