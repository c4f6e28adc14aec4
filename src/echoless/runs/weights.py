"""What is an encoder on disk, and may these weights be used under these shortcuts?

    encoder/model.safetensors   the tensors, with the shortcuts in its metadata
    encoder/config.json         config, shortcuts, and the seal of model.safetensors

Alpha is not a parameter, so nothing in the tensors would notice that they are used under another schedule. It is
therefore written twice, compared on every load, and compared again with what the model was built with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.errors import AlphaMismatch, RunError, UntrustedFile
from echoless.storage.atomic import new_folder
from echoless.storage.jsonfile import json_bytes, parse_json, read_json_object, require_object
from echoless.storage.seal import Seal, check_seal, write_sealed
from echoless.storage.tensorfile import file_bytes, read_tensors, write_tensors

WEIGHTS = "model.safetensors"
CONFIG = "config.json"

_ROUNDING = 1e-9  # below it two alphas differ by rounding, not by schedule


@dataclass(frozen=True)
class Weights:
    """An encoder in memory: its tensors, how to build it, and the shortcuts it was trained with."""

    tensors: dict[str, Tensor]
    config: dict[str, Any]
    shortcuts: dict[str, Any]


def save_weights(
    folder: Path, tensors: Mapping[str, Tensor], config: Mapping[str, Any], shortcuts: Mapping[str, Any]
) -> None:
    """Write (or replace, atomically) an encoder folder."""
    shortcuts = checked_shortcuts(dict(shortcuts), "shortcuts", RunError)
    metadata = {"shortcuts": json_bytes(shortcuts, folder / WEIGHTS, indent=None).decode().strip()}
    with new_folder(folder, needed=file_bytes(folder / WEIGHTS, tensors, metadata)) as temporary:
        seal = write_tensors(temporary / WEIGHTS, tensors, metadata)
        document = {"config": dict(config), "shortcuts": shortcuts, "weights": seal._asdict()}
        write_sealed(temporary / CONFIG, json_bytes(document, folder / CONFIG))


def load_weights(folder: Path) -> Weights:
    """Read an encoder folder; refused when it is damaged or when its two copies of the shortcuts disagree."""
    document = read_json_object(folder / CONFIG)
    config = require_object(document.get("config"), folder / CONFIG)
    shortcuts = checked_shortcuts(document.get("shortcuts"), str(folder / CONFIG), UntrustedFile)
    check_seal(folder / WEIGHTS, Seal.parse(document.get("weights"), folder / CONFIG))
    tensors, metadata = read_tensors(folder / WEIGHTS)

    if "shortcuts" not in metadata:
        raise UntrustedFile(f"{folder / WEIGHTS} does not say under which shortcuts it was trained")
    copy = parse_json(metadata["shortcuts"].encode(), folder / WEIGHTS)
    copy = checked_shortcuts(copy, str(folder / WEIGHTS), UntrustedFile)
    require_same_shortcuts(shortcuts, copy, names=(CONFIG, WEIGHTS))
    return Weights(tensors, config, shortcuts)


def require_same_shortcuts(
    expected: Mapping[str, Any], found: Mapping[str, Any], *, names: tuple[str, str] = ("expected", "found")
) -> None:
    """Refuse, with both tables side by side, when the variant or any alpha differs."""
    ours, theirs = _alphas(expected), _alphas(found)
    same = len(ours) == len(theirs) and all(_equal(a, b) for a, b in zip(ours, theirs))
    if same and expected.get("variant") == found.get("variant"):
        return
    left, right = names
    raise AlphaMismatch(
        f"the shortcuts differ: {left} has {_summary(expected)}, {right} has {_summary(found)}; weights trained under "
        f"one are not valid under the other\n{_table(ours, theirs, names)}"
    )


def _alphas(shortcuts: Mapping[str, Any]) -> Sequence[float]:
    return shortcuts.get("alphas") or ()


def _equal(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=0.0, abs_tol=_ROUNDING)


def _summary(shortcuts: Mapping[str, Any]) -> str:
    words = [f"{key} {shortcuts[key]}" for key in ("variant", "schedule", "per", "fade") if shortcuts.get(key)]
    alphas = _alphas(shortcuts)
    ends = f" from {alphas[0]:.6g} to {alphas[-1]:.6g}" if alphas else ""
    return f"{len(alphas)} alphas{ends} ({', '.join(words) or 'no variant'})"


def _table(ours: Sequence[float], theirs: Sequence[float], names: tuple[str, str]) -> str:
    width = max(12, *map(len, names))
    rows = [f"  shortcut  {names[0]:>{width}}  {names[1]:>{width}}"]
    for i, (a, b) in enumerate(zip_longest(ours, theirs)):
        mark = "" if a is not None and b is not None and _equal(a, b) else "  differs"
        rows.append(f"  {i:>8}  {_cell(a):>{width}}  {_cell(b):>{width}}{mark}")
    return "\n".join(rows)


def _cell(alpha: float | None) -> str:
    return "none" if alpha is None else f"{alpha:.8g}"


def checked_shortcuts(value: Any, where: str, error: type[Exception]) -> dict[str, Any]:
    """An object with a variant and, where they are fixed, finite alphas; as a list, so that both copies compare."""
    if not isinstance(value, dict) or not isinstance(value.get("variant"), str):
        raise error(f"{where} has no valid shortcuts; allowed: an object with a variant and its alphas")
    alphas = value.get("alphas") or []
    if not isinstance(alphas, list | tuple) or not all(_is_finite_number(alpha) for alpha in alphas):
        raise error(f"{where} has alphas that are not finite numbers")
    return {**value, "alphas": [float(alpha) for alpha in alphas]}


def _is_finite_number(value: object) -> bool:
    try:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    except OverflowError:
        return False
