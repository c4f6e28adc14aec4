"""What does the model card of an exported encoder say? Its README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from echoless.config.counts import counted
from echoless.config.headline import RULE, comparable, evaluations, sets_of, single, strength, told_apart
from echoless.config.metrics import Metric, describe, interval_text, number, on_same_images
from echoless.data.resizing import LARGE, SHARE
from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.target import Written

_KIND = ("probe", "k", "noise")  # entries of a protocol that tell measurements of one metric apart
_HUB_NAMES = {"onnxruntime": "onnx"}
_MODES = {1: "L", 3: "RGB"}  # of Pillow, by the channels of the images


def model_card(source: ExportedEncoder, library: str, written: Written, error: str) -> str:
    config = source.encoder.config
    height, width = config.image_size
    parts = [
        f"---\nlibrary_name: {_HUB_NAMES.get(library, library)}\npipeline_tag: image-feature-extraction\n---",
        "# A vision encoder for frozen features",
        (
            f"A vision transformer: width {config.width}, {config.depth} blocks, {config.heads} heads, patches of "
            f"{config.patch_size} x {config.patch_size} in images of {height} x {width} with "
            f"{counted(config.channels, 'channel')}. It was pretrained with {source.shortcuts}, and is stored here as "
            f"an ordinary network: the alphas are folded into its weights, and {library} loads it without further code."
        ),
        "## Feature",
        written.feature,
        "## Usage",
        f"```python\n{_opening(source)}{written.usage}\n```",
        _input(source),
        other_images(source, written),
        "## Error of the export",
        error + " Settings: " + "; ".join(f"{name} {value}" for name, value in written.settings.items()) + ".",
        "## Training",
        _table(source.facts) if source.facts else "Its training was not recorded.",
        _alphas(source),
    ]
    if source.results:
        parts += ["## Evaluation", _results(source.results)]
    return "\n\n".join(parts) + "\n"


def _opening(source: ExportedEncoder) -> str:
    """How an image file is opened; nothing for images with channels that Pillow does not have."""
    if source.encoder.config.channels not in _MODES:
        return ""
    return f"from PIL import Image, ImageOps\n\nimage = {_upright(source)}   # as echoless opens it\n\n"


def _upright(source: ExportedEncoder) -> str:
    """Phones keep photographs lying on their side, and say so in EXIF: nobody but us reads that unasked."""
    mode = _MODES[source.encoder.config.channels]
    return f'ImageOps.exif_transpose(Image.open("photo.jpg")).convert("{mode}")'


def _input(source: ExportedEncoder) -> str:
    mean, std = (", ".join(f"{value:.6g}" for value in values) for values in (source.mean, source.std))
    height, width = source.encoder.config.image_size
    share = f"{SHARE:g} of them, bicubic" if source.large else "them, bilinear"
    return (
        f"Images are resized (antialiased) until the input covers {share}, and cropped at the centre to "
        f"{height} x {width}, scaled to 0..1 (divided by 255, or by 65535 where they have 16 bit), and normalised per "
        f"channel with mean ({mean}) and standard deviation ({std})."
    )


def other_images(source: ExportedEncoder, written: Written) -> str:
    """Libraries have one rule for all images; echoless has two, by their size."""
    which, how = f"above {LARGE}", f"first cropped to their central {100 * SHARE:g} %, and resized bicubic"
    if source.large:
        which, how = f"up to {LARGE}", "used whole, and resized bilinear"
    text = (
        f"In echoless itself, images with a short side {which} pixels are {how}: their features differ from those of "
        f"images that are prepared as the model card says. {written.difference}"
    )
    if source.encoder.config.channels not in _MODES:
        return text.rstrip()
    return (
        f"{text.rstrip()} Photographs of phones are turned upright by their EXIF data, which other libraries leave to "
        f"you: {_upright(source)}."
    )


def _alphas(source: ExportedEncoder) -> str:
    values = ", ".join(f"{alpha:.5g}" for alpha in source.alphas)
    return f"Alpha of each identity shortcut before folding, in the order attention, MLP, attention, ...: {values}"


def _table(facts: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items())])


def _results(records: list[dict[str, Any]]) -> str:
    shown = _strongest(records)
    sets = [{name: item for name, item in sets_of(each[0]).items() if _is_shown(name, item)} for each in shown]
    titles = told_apart([each[0] for each in shown], sets)
    parts = [
        f"Measured with {_cell(title)}:\n\n{_rows(each)}" if title else _rows(each)
        for title, each in zip(titles, shown)
    ]
    hidden = len(records) - sum(map(len, shown))
    if hidden:
        parts.append(
            f"Of each kind of number, one evaluation is shown, with its baselines: {RULE}. The run has {hidden} more "
            "numbers: of other evaluations, layers or snapshots."
        )
    return "\n\n".join(parts)


def _rows(metrics: Sequence[Metric]) -> str:
    rows = ["| metric | value | n | protocol |", "|---|---|---|---|"]
    for metric in metrics:
        own = {
            key: item for key, item in metric.protocol.items() if key not in sets_of(metric) and _is_shown(key, item)
        }
        cells = (
            metric.metric,
            f"{number(metric)}{interval_text(metric)}",
            str(metric.n),
            describe(dict(sorted(own.items()))),
        )
        rows.append(f"| {' | '.join(map(_cell, cells))} |")
    return "\n".join(rows)


def _strongest(records: list[dict[str, Any]]) -> list[list[Metric]]:
    """By evaluation, of every kind of measurement: the strongest of the trained features, and its own baselines."""
    numbers = [Metric.from_json({"n": "", **each}) for each in records if isinstance(each["value"], int | float)]
    numbers = [metric for metric in numbers if single(metric)]
    main: dict[tuple[str, ...], Metric] = {}
    for metric in sorted(numbers, key=lambda each: (comparable(each), strength(each))):  # the last one counts
        main[_kind(metric)] = metric
    chosen: dict[tuple[str, ...], Metric] = {}
    for metric in numbers:
        first = main[_kind(metric)]
        if on_same_images(metric, first) and strength(metric)[0] >= strength(first)[0]:  # of no earlier weights
            chosen[(*_kind(metric), repr(metric.protocol.get("features")))] = metric
    return evaluations(chosen.values())


def _kind(metric: Metric) -> tuple[str, ...]:
    return (metric.metric, *(repr(metric.protocol.get(name)) for name in _KIND))


def _is_shown(key: str, item: Any) -> bool:
    """Numbers, words and the layer; neither lists nor paths, which belong to the machine on which it was measured."""
    if key == "layer":  # block11/+mlp is no path
        return True
    return isinstance(item, bool | int | float) or (isinstance(item, str) and "/" not in item and "\\" not in item)


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
