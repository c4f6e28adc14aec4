"""What does the model card of an exported encoder say? Its README.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from echoless.config.counts import counted
from echoless.config.headline import (
    RULE,
    Seen,
    comparable,
    evaluations,
    no_test,
    seen_by,
    sets_of,
    single,
    strength,
    told_apart,
)
from echoless.config.metrics import Metric, describe, interval_text, number, on_same_images
from echoless.data.resizing import LARGE, SHARE
from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.snippet import as_array, as_picture, comma_separated, has_pictures, upright
from echoless.exchange.target import Written

_KIND = ("probe", "k", "noise")  # entries of a protocol that tell measurements of one metric apart
_HUB_NAMES = {"onnxruntime": "onnx"}
_NO_TEST: dict[Seen, str] = {
    "train": "images of --train in --test",
    "labels": "images whose labels trained the encoder",
    "either": "images of --train in --test, or images whose labels trained the encoder",
}
_WHITE = {8: "divided by 255", 16: "divided by 65535", None: "divided by 255, or by 65535 where they have 16 bit"}


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
        f"```python\n{as_picture(source) if written.prepares else as_array(source)}{written.usage}\n```",
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


def _input(source: ExportedEncoder) -> str:
    height, width = source.encoder.config.image_size
    share = f"{SHARE:g} of them, bicubic" if source.large else "them, bilinear"
    return (
        f"Images are resized (antialiased) until the input covers {share}, and cropped at the centre to "
        f"{height} x {width}, scaled to 0..1 ({_WHITE[source.bits]}), and normalised per channel with mean "
        f"({comma_separated(source.mean)}) and standard deviation ({comma_separated(source.std)})."
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
    if not has_pictures(source):
        return text.rstrip()
    return (
        f"{text.rstrip()} Photographs of phones are turned upright by their EXIF data, which other libraries leave to "
        f"you: {upright(source)}. Files of 16 bit are scaled to 8 bit: divide their values by 257 first, because "
        "Pillow's convert makes all above 255 white."
    )


def _alphas(source: ExportedEncoder) -> str:
    values = ", ".join(f"{alpha:.5g}" for alpha in source.alphas)
    return f"Alpha of each identity shortcut before folding, in the order attention, MLP, attention, ...: {values}"


def _table(facts: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items())])


def _results(records: list[dict[str, Any]]) -> str:
    numbers = [Metric.from_json({"n": "", **each}) for each in records if isinstance(each["value"], int | float)]
    shown = _strongest(numbers)
    if not shown:
        return _none_shown(numbers)
    sets = [{name: item for name, item in sets_of(each[0]).items() if _is_shown(name, item)} for each in shown]
    titles = told_apart([each[0] for each in shown], sets)
    parts = [
        f"Measured with {_cell(title)}:\n\n{_rows(each)}" if title else _rows(each)
        for title, each in zip(titles, shown)
    ]
    hidden = len(records) - sum(map(len, shown))
    if hidden:
        parts.append(
            f"Of each kind of number, one evaluation is shown, with its baselines: {RULE}. The run has "
            f"{counted(hidden, 'more number')}: of other evaluations, layers or snapshots."
        )
    return "\n\n".join(parts)


def _none_shown(numbers: Sequence[Metric]) -> str:
    """Why there is no table."""
    seen = [metric for metric in numbers if no_test(metric)]
    if not seen:
        return "No number is shown: the run has none of its last layer after the last step."
    which = "the only evaluation has" if len(evaluations(seen)) == 1 else "every evaluation has"
    kinds = {seen_by(metric) for metric in seen}
    what = _NO_TEST[kinds.pop() if len(kinds) == 1 else "either"]
    return f"No number is shown: {which} {what} ({no_test(seen[-1])})."


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


def _strongest(numbers: Sequence[Metric]) -> list[list[Metric]]:
    """By evaluation, of every kind of measurement: the strongest of the trained features, and its own baselines."""
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
