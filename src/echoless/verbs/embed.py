"""How does `embed` go from a run and a folder of images to a file of vectors?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from echoless.config.options import EmbedOptions
from echoless.data import open_images
from echoless.evaluation import embed as embedding
from echoless.evaluation.extract import View
from echoless.evaluation.frozen import load
from echoless.runtime import Progress, join_team, leave_team


def embed(source: str | Path, data: str | Path, out: str | Path, **options: Any) -> int:
    """One vector per image. The keywords are the fields of `EmbedOptions`. Returns the number of vectors."""
    return embed_with(str(source), str(data), Path(out), EmbedOptions(**options))


def embed_with(source: str, data: str, out: Path, options: EmbedOptions) -> int:
    embedding.check_target(out, options.overwrite)
    team = join_team(options.device)
    try:
        encoder = load(source, device=str(team.device), noise=options.noise, latent=options.latent)
        with Progress("reading images", 1, "images") as reading:
            if encoder.checkpoint is not None and team.leads:
                reading.say(f"the run has not ended: embedding with {encoder.name}")

            def show(done: int, total: int) -> None:
                reading.total = total
                reading.show(done)

            images = open_images(
                data,
                labels=Path(options.labels) if options.labels else None,
                channels=encoder.converted_channels,
                progress=show if team.leads else None,
                say=reading.say if team.leads else None,
            )
        layer = encoder.default_layer if options.layer == "last" else options.layer
        with Progress("embedding", images.usable, "images") as progress:
            return embedding.embed(
                encoder,
                images,
                out,
                view=View(layer, options.pooling),
                half=options.dtype == "fp16",
                overwrite=options.overwrite,
                rank=team.rank,
                world=team.world,
                wait=team.wait,
                report=(lambda done, total: progress.show(done)) if team.leads else None,
            )
    finally:
        leave_team()
