"""What do the images of a run look like? A sheet of a few of them: RUN/figures/data.png."""

from __future__ import annotations

from echoless.data import Images, plain_images
from echoless.reports import pictures
from echoless.runs import RunFolder

SHOWN = 24


def show_data(run: RunFolder, images: Images, size: tuple[int, int]) -> None:
    """A few images as the model sees them before augmentation, evenly from the whole set: RUN/figures/data.png."""
    path = run.path / "figures" / "data.png"
    if path.exists():
        return
    usable_N = images.usable_ids()
    shown = min(SHOWN, len(usable_N))
    ids = [int(usable_N[i * len(usable_N) // shown]) for i in range(shown)]
    sheet = pictures.tiles(plain_images(images, ids, size), columns=8, side=96, gap=2)
    pictures.save_picture(path, sheet)
