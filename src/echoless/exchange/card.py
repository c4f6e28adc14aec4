"""What does the model card of an exported encoder say? Its README.md."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from echoless.config.counts import counted
from echoless.config.metrics import Metric, interval_text, number
from echoless.data.resizing import LARGE, SHARE
from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.target import Written

_KIND = ("features", "probe", "k", "noise")  # entries of a protocol that tell measurements of one metric apart
_HUB_NAMES = {"onnxruntime": "onnx"}


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
        f"```python\n{written.usage}\n```",
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
    which, how = f"above {LARGE}", f"with the central {SHARE:g}, bicubic"
    if source.large:
        which, how = f"up to {LARGE}", "whole, bilinear"
    text = (
        f"echoless itself shows images with a short side {which} pixels {how}: their features differ from those of "
        f"images that are prepared as the model card says. {written.difference}"
    )
    return text.rstrip()


def _alphas(source: ExportedEncoder) -> str:
    values = ", ".join(f"{alpha:.5g}" for alpha in source.alphas)
    return f"Alpha of each identity shortcut before folding, in the order attention, MLP, attention, ...: {values}"


def _table(facts: Mapping[str, str]) -> str:
    return "\n".join(["| | |", "|---|---|", *(f"| {_cell(name)} | {_cell(value)} |" for name, value in facts.items())])


def _results(records: list[dict[str, Any]]) -> str:
    rows, shown = ["| metric | value | n | protocol |", "|---|---|---|---|"], _newest(records)
    for metric in shown:
        protocol = ", ".join(f"{key} {item}" for key, item in sorted(metric.protocol.items()) if _is_shown(key, item))
        rows.append(
            f"| {_cell(metric.metric)} | {number(metric)}{interval_text(metric)} | {metric.n} | {_cell(protocol)} |"
        )
    hidden = len(records) - len(shown)
    more = (
        f"\n\nThe newest number of each kind. The run has {hidden} more: of earlier evaluations, layers or snapshots."
    )
    return "\n".join(rows) + (more if hidden else "")


def _newest(records: list[dict[str, Any]]) -> list[Metric]:
    """The newest number of every measurement; none of test images that are training images, nor of a scan."""
    found: dict[tuple[Any, ...], Metric] = {}
    for record in records:
        protocol = record["protocol"]
        if not isinstance(record["value"], int | float) or {"scan", "step", "overlap"} & set(protocol):
            continue
        kind = (record["metric"], *(repr(protocol.get(name)) for name in _KIND))
        found.pop(kind, None)  # the newest is last
        found[kind] = Metric.from_json({"n": "", **record})
    return list(found.values())


def _is_shown(key: str, item: Any) -> bool:
    """Numbers, words and the layer; neither lists nor paths, which belong to the machine on which it was measured."""
    if key == "layer":  # block11/+mlp is no path
        return True
    return isinstance(item, bool | int | float) or (isinstance(item, str) and "/" not in item and "\\" not in item)


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")
