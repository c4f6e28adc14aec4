"""What is exported? The encoder of a run or of an encoder folder, and what is known about how it came to be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config import ViTConfig, from_dict
from echoless.errors import EcholessError, RunError
from echoless.models import ViT
from echoless.runs import RunFolder, load_weights, require_same_shortcuts
from echoless.shortcuts import effective_alpha


@dataclass(frozen=True, kw_only=True)
class Source:
    """An encoder in memory and the facts for its card. Nothing in it names a folder of this machine."""

    encoder: ViT
    mean: tuple[float, ...]
    std: tuple[float, ...]
    facts: dict[str, str]  # what the run was: data, length, recipe
    results: list[dict[str, Any]]  # what was measured: RUN/results.json

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
        return f"{variant}: {ends}" if ends else variant


def open_source(path: str | Path) -> Source:
    """A run with an encoder, or an encoder folder."""
    path = Path(path)
    run = (path / "encoder").is_dir() or (path / "checkpoints").is_dir()
    if not path.is_dir():
        raise RunError(f"{path} is not a folder; allowed: a run, or an encoder folder")
    if run and not (path / "encoder" / "config.json").is_file():
        raise RunError(f"{path} has no encoder yet: the run is not complete; finish it with --resume")
    folder = path / "encoder" if run else path
    weights = load_weights(folder)
    encoder = ViT(from_dict(ViTConfig, weights.config.get("model", {}), "model"))
    require_same_shortcuts(encoder.shortcut_record, weights.shortcuts, names=("its config", "its weights"))
    try:
        encoder.load_state_dict(weights.tensors)
    except RuntimeError as error:
        raise RunError(f"{folder} does not fit its config: {' '.join(str(error).split())[:300]}") from None
    if bad := [name for name, tensor in encoder.state_dict().items() if not tensor.isfinite().all()]:
        raise RunError(f"{folder} holds {bad[0]} with numbers that are not finite; allowed: finite weights")
    channels = encoder.config.channels
    return Source(
        encoder=encoder.eval(),
        mean=tuple(weights.config.get("mean") or (0.0,) * channels),
        std=tuple(weights.config.get("std") or (1.0,) * channels),
        facts=_facts(path) if run else {},
        results=_results(path) if run else [],
    )


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
