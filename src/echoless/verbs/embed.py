"""What does `embed` do? From a run and a folder of images to a file of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from echoless.config.addresses import without_secrets
from echoless.config.options import EmbedOptions
from echoless.errors import ConfigError
from echoless.verbs.early import require_data, require_encoder, require_labels, require_vectors_file
from echoless.verbs.signature import signature_of

if TYPE_CHECKING:
    from echoless.data import Images
    from echoless.evaluation.encoder import Encoder


@signature_of(EmbedOptions)
def embed(options: EmbedOptions) -> int:
    """Returns the number of vectors."""
    require_encoder(options.run)
    require_data(options.data)
    require_labels(options.labels)
    require_vectors_file(options.out, overwrite=options.overwrite)

    from echoless.data.reading import describe_bad
    from echoless.evaluation import embed as embedding
    from echoless.evaluation.extract import View
    from echoless.evaluation.frozen import load
    from echoless.runtime import Progress, join_team, leave_team

    source, out, latent = str(options.run), Path(options.out), str(options.latent) if options.latent else None
    embedding.check_target(out, options.overwrite)
    team = join_team(options.device)
    try:
        encoder = load(source, device=str(team.device), noise=options.noise, latent=latent)
        images = _read(options, encoder, leads=team.leads)
        layer = encoder.default_layer if options.layer == "last" else options.layer
        with Progress("embedding", images.usable, "images") as progress:
            rows = embedding.embed(
                encoder,
                images,
                out,
                view=View(layer, options.pooling or encoder.default_pooling),
                half=options.dtype == "fp16",
                overwrite=options.overwrite,
                rank=team.rank,
                world=team.world,
                wait=team.wait,
                report=(lambda done, total: progress.show(done)) if team.leads else None,
                root=_root(options),
                about=_about(options, encoder, layer),
            )
            for line in describe_bad(images, late=True):
                progress.say(line)
            return rows
    finally:
        leave_team()


def _root(options: EmbedOptions) -> Path | None:
    """What stands before every path where absolute ones are wanted."""
    data = Path(options.data)
    if options.paths == "relative":
        return None
    if not data.is_dir():
        raise ConfigError(f"paths is 'absolute', but {data} is not a folder of images, whose files have paths")
    return data.resolve()


def _about(options: EmbedOptions, encoder: Encoder, layer: str) -> dict[str, str]:
    """What the metadata of a parquet file says of its vectors."""
    from echoless.evaluation.embed import as_text

    root = Path(options.data)
    return {
        "run": as_text(options.run),
        "encoder": encoder.fingerprint,
        "layer": layer,
        "pooling": options.pooling or encoder.default_pooling,
        "root": as_text(root.resolve()) if root.exists() else without_secrets(str(options.data)),
        "paths": options.paths,
    }


def _read(options: EmbedOptions, encoder: Encoder, *, leads: bool) -> Images:
    """Every process reads; one of them says how far it is."""
    from echoless.data import open_images
    from echoless.data.reading import describe_bad, describe_tiles, settled_tiles
    from echoless.runtime import Progress

    with Progress("reading images", 1, "images") as reading:
        if encoder.checkpoint is not None and leads:
            reading.say(f"the run has not ended: embedding with {encoder.name}")
        for line in describe_tiles(options.tiles, encoder.tiles) if leads else ():
            reading.say(line)

        def show(done: int, total: int) -> None:
            reading.total = total
            reading.show(done)

        images = open_images(
            options.data,
            labels=Path(options.labels) if options.labels else None,
            channels=encoder.converted_channels,
            reduction=encoder.reduction,
            tiles=settled_tiles(options.data, options.tiles, encoder.tiles),
            progress=show if leads else None,
            say=reading.say if leads else None,
            max_bad_fraction=1.0,
        )
        for line in describe_bad(images) if leads else ():
            reading.say(line)
        return images
