"""What is an export target? A library's name, how to write for it, and how to read back with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.exchange.exported import ExportedEncoder
from echoless.exchange.plain import ReferenceTokens
from echoless.storage.jsonfile import json_bytes
from echoless.storage.seal import write_sealed


@dataclass(frozen=True, kw_only=True)
class Written:
    """What was written: its error by our own arithmetic, and what people must know to use it."""

    error: float
    settings: dict[str, str]  # what was chosen, by name: printed, and listed in the card
    feature: str  # which tensor is the feature, in one or two sentences
    usage: str  # a few lines of Python, which take what `snippet.py` opens
    prepares: bool = False  # whether they take `image`, a picture of Pillow, and not `images`, a prepared array
    difference: str = ""  # where its own preparation of images is another than ours, beside what `card.py` says of all


@dataclass(frozen=True)
class Target:
    library: str  # what it is called
    extra: str  # what to install to check it
    write: Callable[[Path, ExportedEncoder, ReferenceTokens], Written]
    # The tokens of the last block as the library computes them from a folder, and the library's version.
    read_back: Callable[[Path, ExportedEncoder, Tensor], tuple[Tensor, str]]


class Unusable(Exception):
    """The other library cannot be imported here; says whether it is missing, or what is broken."""

    def __init__(self, module: str, extra: str, error: Exception) -> None:
        if isinstance(error, ModuleNotFoundError) and error.name == module:
            super().__init__(f"is not installed here (extra: echoless[{extra}])")
        else:
            super().__init__(f"is installed here but cannot be imported ({' '.join(str(error).split())[:200]})")


def write_config(folder: Path, value: Mapping[str, Any], source: ExportedEncoder) -> None:
    """With what echoless asks of every encoder, whoever opens it: did labels train it?"""
    write_json_file(folder / "config.json", {**value, **source.mark})


def write_json_file(path: Path, value: Mapping[str, Any]) -> None:
    """A new JSON file in a folder that is being filled."""
    write_sealed(path, json_bytes(dict(value), path))
