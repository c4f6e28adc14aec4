"""What does `embed` do? From a run and a folder of images to a table of features."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.addresses import without_secrets
from echoless.config.options import EmbedOptions
from echoless.config.options.fields import path_text
from echoless.config.sizes import parse_bytes
from echoless.errors import ConfigError
from echoless.verbs.early import require_data, require_encoder, require_labels, require_vectors_file
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.data import Images
    from echoless.evaluation.encoder import Encoder
    from echoless.evaluation.table_columns import Columns
    from echoless.runtime import Progress


@signature_of(EmbedOptions)
def embed(options: EmbedOptions) -> int:
    """Returns the number of images in the table; under torchrun, in the first process."""
    require_encoder(options.run)
    require_data(options.data)
    require_labels(options.labels)
    require_vectors_file(options.out, overwrite=options.overwrite)

    from echoless.data.reading import describe_bad
    from echoless.evaluation import embed as embedding
    from echoless.evaluation.frozen import load
    from echoless.evaluation.table_files import TableTarget, check_target
    from echoless.runtime import join_team, leave_team

    target = TableTarget(Path(options.out), options.overwrite, parse_bytes("part_size", options.part_size))
    team = join_team(options.device)
    try:
        with team.together():
            encoder = load(
                str(options.run), device=str(team.device), noise=options.noise, latent=path_text(options.latent)
            )
            columns = _columns(options, encoder)
            check_target(target, columns)
        images = team.leader_first(lambda: _read(options, encoder, leads=team.leads))
        team.require_same("images", images.identity)
        with team.together():
            columns.check(encoder, images)
        with _Stages() as stages:
            rows = embedding.embed(
                encoder,
                images,
                target,
                columns,
                workers=options.workers,
                report=stages.show,
                about=_about(options, encoder, images, columns),
                warn=stages.say,
            )
        for line in describe_bad(images, late=True):
            print(line, file=sys.stderr)
        return rows
    finally:
        leave_team()


def _columns(options: EmbedOptions, encoder: Encoder) -> Columns:
    from echoless.evaluation.extract import PATCHES, View
    from echoless.evaluation.table_columns import Columns

    names = [encoder.default_layer if name == "last" else name for name in options.layer.split(",")]
    pooling = PATCHES if options.tokens else options.pooling or encoder.default_pooling
    if options.tokens and options.pooling is not None:
        raise ConfigError(f"pooling is {options.pooling!r}, but --tokens writes every patch; give one of the two")
    views = tuple(View(name, pooling) for name in dict.fromkeys(names))
    return Columns(views, options.dtype == "fp16", _root(options), options.map)


def _root(options: EmbedOptions) -> Path | None:
    """What stands before every path where absolute ones are wanted."""
    data = Path(options.data)
    if options.paths == "relative":
        return None
    if not data.is_dir():
        raise ConfigError(f"paths is 'absolute', but {data} is not a folder of images, whose files have paths")
    return data.resolve()


def _about(options: EmbedOptions, encoder: Encoder, images: Images, columns: Columns) -> dict[str, str]:
    """What the metadata of a parquet file says of its features: enough to encode another image in the same way."""
    from echoless.data.reading import settled_tiles

    known = {
        "run": _place(str(options.run)),
        "encoder": encoder.fingerprint,
        "layer": ",".join(view.layer for view in columns.views),
        "pooling": columns.views[0].pooling,
        "root": _place(str(options.data)),
        "paths": options.paths,
        "data": images.fingerprint,
        "dtype": options.dtype,
        "noise": encoder.noise,
        "latent": None if options.latent is None else _place(str(options.latent)),
        "tiles": settled_tiles(options.data, options.tiles, encoder.tiles),
        "view": "whole" if images.stand_for_tiles else None,
        "assumed_normalisation": encoder.assumed.normalisation if encoder.assumed else None,
        "file_channels": images.file_channels if images.converted else None,
        "grid": " ".join(map(str, encoder.grid)) if columns.dense and encoder.grid else None,
        "map": options.map,
    }
    return {name: str(value) for name, value in known.items() if value is not None}


def _place(given: str) -> str:
    """An absolute path or pattern, an address without its secrets, or a name such as timm:NAME."""
    from echoless.data.shards import absolute_pattern, is_local_pattern
    from echoless.evaluation.table_columns import as_text

    if is_local_pattern(given):
        return as_text(absolute_pattern(given))
    return as_text(Path(given).resolve()) if Path(given).exists() else without_secrets(given)


class _Stages:
    """One line of progress for each stage of the work."""

    def __init__(self) -> None:
        self._stack, self._stage = ExitStack(), ""
        self._line: Progress | None = None

    def __enter__(self) -> _Stages:
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def say(self, text: str) -> None:
        if self._line is not None:
            self._line.say(text)

    def show(self, stage: str, done: int, total: int) -> None:
        from echoless.runtime import Progress

        if stage != self._stage or self._line is None:
            self._stack.close()
            self._line = self._stack.enter_context(
                Progress(stage, total, "images" if stage == "embedding" else "files")
            )
            self._stage = stage
            self._line.begin(done)  # what an earlier process did is not credited to this one
        else:
            self._line.show(done)


def _read(options: EmbedOptions, encoder: Encoder, *, leads: bool) -> Images:
    """The first process says how far it is."""
    from echoless.data import open_images
    from echoless.data.reading import (
        describe_bad,
        describe_classes,
        describe_large,
        describe_tiles,
        settled_tiles,
        stand_for_tiles,
    )
    from echoless.runtime import Progress

    with Progress("reading images", 1, "images") as reading:
        if encoder.checkpoint is not None and leads:
            reading.say(f"the run has not ended: embedding with {encoder.name}")
        for line in describe_tiles(options.data, options.tiles, encoder.tiles) if leads else ():
            reading.say(line)

        def show(done: int, total: int) -> None:
            reading.total = total
            reading.show(done)

        images = open_images(
            options.data,
            labels=Path(options.labels) if options.labels else None,
            channels=encoder.channels,
            reduction=encoder.reduction,
            tiles=settled_tiles(options.data, options.tiles, encoder.tiles),
            progress=show if leads else None,
            say=reading.say if leads else None,
            max_bad_fraction=1.0,
        )
        images.stand_for_tiles = stand_for_tiles(options.data, options.tiles, encoder.tiles)
        large = describe_large(images, encoder.framing, encoder.image_size) if not options.tokens else []
        for line in (*describe_bad(images), *describe_classes(images), *large) if leads else ():
            reading.say(line)
        return images
