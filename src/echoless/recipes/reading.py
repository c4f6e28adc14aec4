"""How does a verb read its images? With a line that moves while the cache is built."""

from __future__ import annotations

from pathlib import Path

from echoless.data import Images, open_images
from echoless.training import Progress


def read_images(data: str, labels: str | None) -> Images:
    with Progress("reading images", 1, "images") as progress:

        def show(done: int, total: int) -> None:
            progress.total = total
            progress.show(done)

        return open_images(data, labels=Path(labels) if labels else None, progress=show)
