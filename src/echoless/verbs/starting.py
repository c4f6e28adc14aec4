"""What does a run start from? The weights of --init, or of `finetune RUN`: ours, or of another project."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from echoless.config import MAEConfig, MaskedConfig, RunConfig
from echoless.config.facts import StartFacts
from echoless.config.options import FinetuneOptions, PretrainOptions
from echoless.config.options.fields import AnyPath
from echoless.data import Images
from echoless.data.overlap import keys_by_set
from echoless.exchange.starting import is_foreign, open_foreign
from echoless.runs.checkpoint import checkpoint_folders
from echoless.runs.open import Start, load_body, load_model
from echoless.runs.taught import Taught, taught_by
from echoless.training import require_source


def open_start(options: PretrainOptions) -> Start | None:
    """The weights of --init, opened; None where there are none, or where a checkpoint of the run itself holds more."""
    if options.init is None or (options.resume and checkpoint_folders(Path(options.out) / "checkpoints")):
        return None
    path = Path(options.init)
    if path.exists() and is_foreign(path):
        start = open_foreign(path)
        said = options.mean is not None and options.std is not None
        return replace(start, assumed=None) if said else start  # what was given is no assumption
    require_source(path)
    return Start(body=load_body(path), whole=load_model(path) if (path / "checkpoints").is_dir() else None)


def open_encoder(path: Path, use: str) -> Start:
    """A ViT alone, of ours or of others. `use`: what for, as errors say it."""
    if path.exists() and is_foreign(path):
        return open_foreign(path)
    return Start(body=load_body(path, kinds=("vit",), use=use))


def facts_of_start(start: Start | None, record: RunConfig | None) -> StartFacts | None:
    """What decides the config of a new run; a run that is resumed has its own."""
    if start is None or record is not None:
        return None
    body, whole = start.body, start.whole
    model, objective = (None, None) if whole is None else (whole.config.model, whole.config.objective)
    return StartFacts(
        name=body.name,
        body=body.config if start.image_size is None else replace(body.config, image_size=start.image_size),
        foreign=start.foreign,
        mean=body.mean,
        std=body.std,
        model=model if isinstance(model, MAEConfig) else None,
        objective=objective if isinstance(objective, MaskedConfig) else None,
        head=_head_sizes(start),
    )


def taught_before(start: AnyPath | None, options: PretrainOptions | FinetuneOptions, *sets: Images | None) -> Taught:
    """Whose labels have trained the weights so far: those that a run starts from, and those of a run that is resumed.

    sets: the images at hand, by which runs of earlier versions are known.
    """
    known = keys_by_set(*sets)
    before = Taught() if start is None else taught_by(Path(start), known)
    return before | taught_by(Path(options.out), known) if options.resume else before


def _head_sizes(start: Start) -> tuple[int, int, int] | None:
    if not start.head:
        return None
    prototypes, bottleneck = start.head["prototypes"].shape
    return len(start.head["fc1.bias"]), bottleneck, prototypes


def with_channels_of(options: PretrainOptions, start: StartFacts | None) -> PretrainOptions:
    """Images are converted to the channels of a foreign encoder, grey or colour."""
    if start is None or not start.foreign or options.channels is not None:
        return options
    return replace(options, channels=start.body.channels)
