"""What is exported? A trained ViT and what its model card says about it: data, length, recipe, measurements."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.data.resizing import LARGE
from echoless.errors import EcholessError
from echoless.models import ViT
from echoless.runs import RunFolder
from echoless.runs.around import run_of
from echoless.runs.open import load_body
from echoless.runs.taught import mark_of
from echoless.shortcuts import effective_alpha


@dataclass(frozen=True, kw_only=True)
class ExportedEncoder:
    """An encoder in memory and the facts for its card. Nothing in it names a local folder."""

    encoder: ViT
    origin: str  # which weights: "encoder", "snapshot of step 40", "checkpoint of step 120, averaged"
    mean: tuple[float, ...]
    std: tuple[float, ...]
    large: bool  # whether it is for large images: its input is large, or the images that it was trained on
    bits: int | None  # of each channel of the images that it was trained on; None: not recorded
    facts: dict[str, str]  # what the run was: data, length, recipe
    results: list[dict[str, Any]]  # what was measured: RUN/results.json
    mark: Mapping[str, bool]  # that labels trained it: an entry for its config

    @property
    def alphas(self) -> list[float]:
        return self.encoder.shortcut_record["alphas"]

    @property
    def shortcuts(self) -> str:
        """One line for people."""
        alphas, variant = self.alphas, self.encoder.shortcut_record["variant"]
        if variant == "identity":
            return "plain residual connections (alpha 1 everywhere)"
        ends = (
            f"alpha from {alphas[0]:.4g} to {alphas[-1]:.4g}, product {effective_alpha(alphas):.3g}" if alphas else ""
        )
        word = "no" if variant == "none" else variant.replace("_", " ")
        return f"{word} shortcuts ({ends})" if ends else f"{word} shortcuts"


def open_encoder(path: str | Path) -> ExportedEncoder:
    """A run, a checkpoint, a snapshot or an encoder folder, which holds a ViT."""
    path = Path(path)
    body = load_body(path, kinds=("vit",), use="for export")
    run = (path / "encoder").is_dir() or (path / "checkpoints").is_dir()
    facts, data = _facts(path) if run else {}, _data(path)
    if body.is_checkpoint:
        facts["weights"] = f"{body.origin}; the run has not ended"
    return ExportedEncoder(
        encoder=body.model,
        origin=body.origin,
        mean=body.mean,
        std=body.std,
        large=_is_for_large(data, body.config.image_size),
        bits=data["bits"] if data.get("bits") in (8, 16) else None,
        facts=facts,
        results=_results(path) if run and not body.is_checkpoint else [],
        mark=mark_of(path),
    )


def _data(path: Path) -> Mapping[str, Any]:
    """What is recorded of the images of its run: the run of a checkpoint is around it."""
    with suppress(EcholessError):
        return _object(RunFolder(run_of(path)).read_about().get("data"))
    return {}


def _is_for_large(data: Mapping[str, Any], image_size: tuple[int, int]) -> bool:
    """By the typical file, or tile, of its run; by the input where that is not recorded."""
    of_files = "file_height" in data and "files" not in data  # `files`: it was cut into tiles
    size = [data.get(f"file_{name}" if of_files else name) for name in ("height", "width")]
    sides = [side for side in size if isinstance(side, int)]
    return min(sides or image_size) > LARGE


def _facts(run: Path) -> dict[str, str]:
    """A few lines of RUN/config.json, whatever kind of run it is; a run without one is exported all the same."""
    try:
        config = RunFolder(run).read_config()
    except EcholessError:
        return {}
    data, steps, batch = _object(config.get("data")), config.get("steps"), config.get("batch_size")
    facts: dict[str, Any] = {"recipe": config.get("recipe")}
    if data.get("path"):
        facts["data"] = f"{Path(str(data['path'])).name}, {data.get('count')} images"
        facts["fingerprint of the data"] = data.get("fingerprint")
    if isinstance(steps, int) and isinstance(batch, int):
        facts["length"] = f"{steps} steps of {batch} images"
    return {name: str(value) for name, value in facts.items() if value}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _results(run: Path) -> list[dict[str, Any]]:
    try:
        return RunFolder(run).read_results()
    except EcholessError:
        return []
