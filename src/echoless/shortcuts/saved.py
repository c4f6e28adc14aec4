"""Which alphas do saved weights belong to? Read from a folder of transformers or diffusers, or from a file.

The header of a .safetensors file is read here, because `shortcuts` needs nothing but torch: its length in eight bytes,
then JSON that says between which bytes of the rest each tensor lies.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from echoless.shortcuts.report import Saved, at_home, parse_record
from echoless.shortcuts.travel import BUFFER, CONFIG_ENTRY, record_of

_LARGEST = 100_000_000  # bytes of a header of safetensors; a record of a thousand shortcuts has 200,000


class UnreadableWeights(ValueError):
    """A .safetensors file that is none, such as the pointer to one that was not downloaded."""


def read_saved(path: str | os.PathLike[str]) -> Saved:
    """Of a folder that `save_pretrained` wrote, a .safetensors file, or the file of a `FadeReport`."""
    given = at_home(path)
    if given.is_dir():
        if (found := find_saved(given)) is not None:
            return found
        raise ValueError(
            f"{given} has no alphas of fade, neither in its config.json nor in a .safetensors file; give a folder "
            "that save_pretrained wrote of a faded model, its state dict, or a file written by FadeReport.save"
        )
    if given.suffix == ".safetensors":
        return record_of(_entries(given), str(given))
    try:
        text = _limited(given, given.stat().st_size, 0).decode()
    except OSError as error:
        raise ValueError(f"{given} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(
            f"{given} has no alphas of fade; allowed: a folder that save_pretrained wrote, a .safetensors file, or a "
            "file written by FadeReport.save"
        ) from error
    return parse_record(text, str(given))


def find_saved(folder: Path) -> Saved | None:
    """Of a folder that `save_pretrained` wrote; None where its model was not faded.

    transformers writes the record to config.json, too; with diffusers one of the files of weights has it.
    """
    config = folder / "config.json"
    if config.is_file() and CONFIG_ENTRY in (text := config.read_text(encoding="utf-8", errors="replace")):
        return parse_record(text, str(config))
    found = {name: entry for file in sorted(folder.glob("*.safetensors")) for name, entry in _entries(file).items()}
    return record_of(found, str(folder)) if found else None


def _entries(file: Path) -> dict[str, Any]:
    """The record in a .safetensors file, under its name; the weights are not read."""
    try:
        length = int.from_bytes(_limited(file, 8, 0), "little")
        header = json.loads(_limited(file, length, 8))
        places = {name: each["data_offsets"] for name, each in header.items() if name.split(".")[-1] == BUFFER}
        parts = {name: _limited(file, end - start, 8 + length + start) for name, (start, end) in places.items()}
        return {name: torch.frombuffer(bytearray(part), dtype=torch.uint8) for name, part in parts.items()}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnreadableWeights(f"{file} is not a safetensors file: {error}") from error


def _limited(file: Path, size: int, start: int) -> bytes:
    if not 0 < size <= _LARGEST or start < 0:
        raise ValueError(f"{size} bytes cannot be read from its byte {start} on; allowed: 1 to {_LARGEST}")
    with file.open("rb") as opened:
        opened.seek(start)
        return opened.read(size)
