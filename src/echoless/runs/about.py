"""What is recorded about a run besides its settings? The facts in about.json, and the sentences made of them.

data        images, height, width, channels, bits; file_height and file_width, and the number of files of tiles; larger,
            where a few images are: how many, height and width of the largest; file_channels, where they were converted;
            input, crop_scale and interpolation: what a step sees of an image
model       title, parameters
parameters  all, encoder
shortcuts   variant, first_alpha, last_alpha, effective_alpha (of fixed alphas); fade_in_steps, where they move at first
run         steps, batch_size, epochs, optimizer, precision, compiled, seed
speed       images_per_second, after the first steps of the latest session
sessions, ended, seconds, started      over all sessions; a killed one has begun and not ended
command, machine, versions             of the first session
history     command, started, seconds, machine, versions, images_per_second of every session, in order
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from echoless.config.counts import counted

Facts = Mapping[str, Any]


def sentences(facts: Facts) -> dict[str, str]:
    """One sentence for each part that is known and whole, for the log and for the page."""
    parts: dict[str, Callable[[Facts], str]] = {"data": _data, "model": _model, "shortcuts": _shortcuts, "run": _run}
    found = {}
    for name, compose in parts.items():
        try:
            found[name] = compose(facts[name])
        except (KeyError, TypeError, ValueError):  # missing, or of the wrong kind: a file that somebody else wrote
            continue
    return found


def _data(data: Facts) -> str:
    kept = f"{data['height']} x {data['width']}"
    file = f"{data['file_height']} x {data['file_width']}" if "file_height" in data else kept
    if "files" in data:
        tiles, files = counted(data["images"], "tile"), counted(data["files"], "image")
        what = f"{tiles} of {kept} from {files} of about {file}"
    else:
        at = f", kept at about {kept}" if kept != file else ""
        what = f"{counted(data['images'], 'image')} of about {file}{at}{_larger(data)}"
    return f"{what}, {counted(data['channels'], 'channel')}, {data['bits']} bit{_crops(data)}{_reduced_tiles(data)}"


def _larger(data: Facts) -> str:
    """The photographs in a folder of small images: they are used as all others, and were not meant, perhaps."""
    if "larger" not in data:
        return ""
    larger = data["larger"]
    return (
        f" ({larger['images']} of them more than twice as large, kept at up to {larger['height']} x {larger['width']})"
    )


def _crops(data: Facts) -> str:
    """What a step sees of an image; nothing in runs of earlier versions."""
    if "input" not in data:
        return ""
    size = " x ".join(map(str, data["input"]))
    if data["crop_scale"] is None:
        return f"; the centre, at {size}"
    low, high = (round(100 * share) for share in data["crop_scale"])
    return f"; random crops of {low} to {high} % of the area, {data['interpolation']}, at {size}"


def _reduced_tiles(data: Facts) -> str:
    """Where the input is smaller than a tile: whoever cut tiles wanted to keep the details that this loses."""
    tile, size = (data["height"], data["width"]), data.get("input", (math.inf,))
    if "files" not in data or min(size) >= max(tile):
        return ""
    whole = " ".join(map(str, dict.fromkeys(tile)))
    return f", smaller than a tile, which --image-size {whole} shows at full size"


def _model(model: Facts) -> str:
    return f"{model['title']}, {model['parameters'] / 1e6:.1f} M parameters"


def _shortcuts(shortcuts: Facts) -> str:
    if shortcuts.get("effective_alpha") is None:
        return f"{shortcuts['variant']}, one learned alpha each"
    first, last, effective = (shortcuts[f"{name}_alpha"] for name in ("first", "last", "effective"))
    if first == last == effective == 1:
        return "plain, alpha 1 everywhere: a standard residual network"
    said = f"{shortcuts['variant']}, alpha from {first:.3g} to {last:.4g}, effective {effective:.1e}"
    ramp = shortcuts.get("fade_in_steps")
    return said if ramp is None else f"{said}; every alpha moves there from 1 in the first {ramp} steps"


def _run(run: Facts) -> str:
    return (
        f"{counted(run['steps'], 'step')} of {counted(run['batch_size'], 'image')} ({run['epochs']:.1f} epochs), "
        f"{run['optimizer']}, "
        f"{run['precision']}, {'compiled' if run['compiled'] else 'not compiled'}, seed {run['seed']}"
    )


def session_count(about: Facts) -> int:
    count = about.get("sessions", 0)
    return count if isinstance(count, int) else 0


def speed_of(about: Facts) -> float | None:
    """Images per second of the latest session, once it knows them."""
    speed = about.get("speed")
    value = speed.get("images_per_second") if isinstance(speed, dict) else None
    return value if isinstance(value, int | float) and value > 0 else None
