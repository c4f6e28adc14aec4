"""How does `conditioning` measure the Jacobian of every block of three fresh ViTs? The half of it that needs torch.

residual: identity shortcuts; skipless: none, the same weights; initialised: none, weights by `init_skipless_`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.config import ShortcutConfig, ViTConfig
from echoless.config.options import ConditioningOptions
from echoless.config.tables import aligned
from echoless.data import evaluation_batches
from echoless.data.opening import NO_LABELS
from echoless.data.reading import read_images
from echoless.data.resizing import BY_SIZE
from echoless.evaluation.jacobians import attention_diagonality, jacobian_condition
from echoless.models import ViT
from echoless.randomness import generator_for
from echoless.reports.curves import Panel, draw_panels
from echoless.shortcuts import init_skipless_
from echoless.storage import write_json
from echoless.storage.atomic import explained

MODELS = ("residual", "skipless", "skipless, initialised")
Say = Callable[[str], None]


def measure_conditioning(options: ConditioningOptions, say: Say) -> list[dict[str, Any]]:
    out = Path(options.out)
    build(MODELS[0], options, channels=3)  # sizes that do not fit, before any work
    batch = _batch(options)
    records = []
    for name in MODELS:
        say(f"measuring: {name}")
        records += _measure(name, options, batch)
    say(table(records))
    with explained(out):
        out.mkdir(parents=True, exist_ok=True)
    write_json(out / "conditioning.json", records)
    say(f"{out / 'conditioning.json'}, {_draw(out / 'conditioning.png', records)}")
    return records


def build(name: str, options: ConditioningOptions, channels: int) -> ViT:
    """One of the three models; the first two have the same weights."""
    shortcuts = ShortcutConfig(variant="identity" if name == "residual" else "none", alpha_min=1.0)
    config = ViTConfig(
        image_size=(options.image_size, options.image_size),
        patch_size=options.patch_size,
        channels=channels,
        width=options.width,
        depth=options.depth,
        heads=options.heads,
        zero_init=False,
        shortcuts=shortcuts,
    )
    model = ViT(config, generator_for(options.seed, "init", 0))
    if name == MODELS[2]:
        init_skipless_(model, options.alpha, options.beta, options.c, generator=generator_for(options.seed, "init", 1))
    return model


def _batch(options: ConditioningOptions) -> Tensor:
    size = (options.image_size, options.image_size)
    images = read_images(str(options.data), NO_LABELS, reduction=BY_SIZE.reduction(size))
    half = (0.5,) * images.shape.channels
    batches = evaluation_batches(images, size=size, batch_size=options.images, mean=half, std=half, workers=0)
    return next(iter(batches)).images_BCHW


def _measure(name: str, options: ConditioningOptions, batch: Tensor) -> list[dict[str, Any]]:
    model = build(name, options, batch.shape[1])
    diagonality = attention_diagonality(model, batch)
    conditions = jacobian_condition(
        model, batch, exact_up_to=options.exact_up_to, steps=options.steps, seed=options.seed
    )
    return [
        {
            "model": name,
            "block": block,
            "diagonality": diagonality[block],
            "largest": extremes.largest,
            "smallest": extremes.smallest,
            "exact": extremes.exact,
        }
        for block, extremes in conditions.items()
    ]


def _condition(record: dict[str, Any]) -> float:
    # What double precision cannot tell from zero is as far as a condition number is known.
    return record["largest"] / max(record["smallest"], record["largest"] * 2.0**-52)


def table(records: list[dict[str, Any]]) -> str:
    """A row for every block: for each model the condition number and how diagonal its attention is."""
    cells = {(r["model"], r["block"]): r for r in records}
    blocks = list(dict.fromkeys(r["block"] for r in records))
    rows = [["block"] + [f"{name}: cond, diag" for name in MODELS]]
    for block in blocks:
        row = [cells[name, block] for name in MODELS]
        rows.append(
            [block, *(f"{'' if r['exact'] else '> '}{_condition(r):8.1e}  {r['diagonality']:.2f}" for r in row)]
        )
    return aligned(rows)


def _draw(path: Path, records: list[dict[str, Any]]) -> Path:
    def lines(value: Callable[[dict[str, Any]], float]) -> dict[str, list[float]]:
        return {name: [value(r) for r in records if r["model"] == name] for name in MODELS}

    exact = all(record["exact"] for record in records)
    title = "condition number of the attention's Jacobian" + ("" if exact else ", lower bound")
    return draw_panels(
        path,
        Panel(title, "block", lines(_condition), logarithmic=True),
        Panel("attention of a token to itself", "block", lines(lambda record: record["diagonality"])),
    )
