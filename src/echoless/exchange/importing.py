"""How does somebody else's checkpoint become a run that `--init`, `evaluate` and `embed` take?

    DIR/encoder/               the encoder, in our format
    DIR/checkpoints/           the whole autoencoder as step 0, where the file has a decoder that ours can be
    DIR/config.json            the same as a run's, where there is a checkpoint
    DIR/import.json            where it came from, and what was left behind

Another kind of checkpoint is another line in FAMILIES.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from echoless.config import DataConfig, MAEConfig, RunConfig, ViTConfig, to_dict
from echoless.config.options import ImportOptions
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.export import require_new
from echoless.exchange.foreign import Foreign, Imported, read_foreign
from echoless.exchange.from_hf import from_hf_vit, from_hf_vitmae
from echoless.exchange.from_mae import from_authors, from_mae, from_vit
from echoless.exchange.target import write_json_file
from echoless.models import MAE, ViT, sincos_positions
from echoless.runs import new_folder, save_checkpoint, save_weights, write_json
from echoless.runs.jsonfile import open_untrusted

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))


class Family(NamedTuple):
    """Checkpoints that share their names. The first family whose `signs` are all there is the one."""

    name: str
    signs: tuple[str, ...]  # tensors that only this family has
    convert: Callable[[Foreign, ImportOptions], Imported]


FAMILIES = (
    Family("a faded masked autoencoder of the paper's authors", ("skip.0.fc.0.weight", "pos_embed"), from_authors),
    Family("a masked autoencoder of facebookresearch/mae", ("decoder_embed.weight", "pos_embed"), from_mae),
    Family("a ViT in the names of timm", ("blocks.0.attn.qkv.weight", "pos_embed"), from_vit),
    Family("a ViTMAE of transformers", ("vit.embeddings.cls_token", "decoder.mask_token"), from_hf_vitmae),
    Family("a ViT of transformers", ("vit.embeddings.cls_token",), from_hf_vit),
    Family("a ViT of transformers", ("embeddings.cls_token",), from_hf_vit),
)


@dataclass(frozen=True)
class ImportReport:
    """What was found, what was written, what was dropped."""

    out: Path
    family: str
    encoder: ViTConfig
    has_decoder: bool
    dropped: tuple[str, ...]

    def __str__(self) -> str:
        config, (height, width) = self.encoder, self.encoder.image_size
        lines = [
            f"read {self.family}: width {config.width}, {config.depth} blocks, {config.heads} heads, patch "
            f"{config.patch_size} at {height} x {width}, {config.channels} channel(s), alpha_min "
            f"{config.shortcuts.alpha_min}",
            f"dropped: {', '.join(self.dropped) or 'nothing'}",
            f"wrote {self.out}: " + ("encoder and decoder" if self.has_decoder else "the encoder"),
            f"use it: echoless pretrain DATA --out RUN --init {self.out}; evaluate and embed take it as a run",
        ]
        return "\n".join(lines)


def import_checkpoint(file: str | Path, out: str | Path, **options: Any) -> ImportReport:
    """Read a checkpoint of others into our format. The keywords are the fields of `ImportOptions`."""
    return import_with(Path(file), Path(out), ImportOptions(**options))


def import_with(file: Path, out: Path, options: ImportOptions) -> ImportReport:
    require_new(out)
    foreign = read_foreign(file)
    family = _family(foreign)
    imported = _with_fixed_positions(_converted(family, foreign, options))
    normalisation = _normalisation(imported.encoder, foreign, options)
    encoder_state, shortcuts = _checked(ViT, imported.encoder, imported.encoder_state, file)
    whole: dict[str, Tensor] = {}
    if imported.mae is not None:
        parts = {"encoder": imported.encoder_state, "decoder": imported.decoder_state}
        state = {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}
        whole, _ = _checked(MAE, imported.mae, state, file)
    dropped = (*foreign.dropped, *imported.dropped)
    with new_folder(out) as temporary:
        mean, std = normalisation
        described = {"kind": "vit", "model": to_dict(imported.encoder), "mean": list(mean), "std": list(std)}
        save_weights(temporary / "encoder", encoder_state, described, shortcuts)
        if imported.mae is not None:
            _write_checkpoint(temporary, imported, whole, shortcuts, normalisation)
        record = {"file": file.name, "sha256": _sha256(file), "family": family.name, "dropped": list(dropped)}
        write_json_file(temporary / "import.json", record)
    return ImportReport(out, family.name, imported.encoder, imported.mae is not None, dropped)


def _family(foreign: Foreign) -> Family:
    for family in FAMILIES:
        if all(sign in foreign.tensors for sign in family.signs):
            return family
    known = "; ".join(dict.fromkeys(family.name for family in FAMILIES))
    some = ", ".join(sorted(foreign.tensors)[:3]) or "nothing"
    raise UntrustedFile(f"{foreign.path} holds {some} ..., which is no checkpoint known here; allowed: {known}")


def _converted(family: Family, foreign: Foreign, options: ImportOptions) -> Imported:
    try:
        return family.convert(foreign, options)
    except UntrustedFile as error:
        raise UntrustedFile(f"{foreign.path}: {error}") from None
    except (IndexError, RuntimeError, TypeError) as error:  # tensors of shapes that no such model has
        raise UntrustedFile(f"{foreign.path} is not {family.name}: {' '.join(str(error).split())[:200]}") from None


def _with_fixed_positions(imported: Imported) -> Imported:
    """A warm start computes the decoder's positions anew: a decoder with others would be another function."""
    if imported.mae is None:
        return imported
    found = imported.decoder_state["positions"]
    expected = sincos_positions(imported.encoder.grid, imported.mae.decoder_width)
    if found.shape == expected.shape and torch.allclose(found.float(), expected, rtol=0, atol=1e-3):
        return imported
    dropped = (*imported.dropped, "the decoder (its positions are not sines and cosines)")
    return replace(imported, mae=None, decoder_state={}, dropped=dropped)


def _checked(
    kind: type[ViT] | type[MAE], config: Any, state: Mapping[str, Tensor], file: Path
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state in float32 and the shortcuts, if it fits the config exactly and is finite.

    The model is built without memory: a file of kilobytes must not be able to ask for gigabytes.
    """
    with torch.device("meta"):
        model = kind(config)
    expected = {name: tensor.shape for name, tensor in model.state_dict().items()}
    found = {name: tensor.shape for name, tensor in state.items()}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name):
            here, there = (tuple(shapes[name]) if name in shapes else "none" for shapes in (found, expected))
            raise UntrustedFile(f"{file}: {name} has the shape {here}; allowed by its other shapes: {there}")
    tensors = {name: tensor.float().contiguous() for name, tensor in state.items()}
    if bad := [name for name, tensor in tensors.items() if not tensor.isfinite().all()]:
        raise UntrustedFile(f"{file}: {bad[0]} holds numbers that are not finite")
    return tensors, model.shortcut_record


def _normalisation(
    config: ViTConfig, foreign: Foreign, options: ImportOptions
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    known = [foreign.processor.get(key) for key in ("image_mean", "image_std")]
    usual = IMAGENET if config.channels == 3 else ((0.5,) * config.channels, (0.25,) * config.channels)
    chosen = []
    for name, given, own, default in zip(("mean", "std"), (options.mean, options.std), known, usual):
        values = given or own or default
        good = len(values) == config.channels and all(isinstance(v, int | float) and abs(v) < 1e6 for v in values)
        if not good or (name == "std" and min(values) <= 0):
            raise ConfigError(f"{name} is {values!r}; allowed: {config.channels} numbers, one for each channel")
        chosen.append(tuple(float(value) for value in values))
    return chosen[0], chosen[1]


def _write_checkpoint(
    folder: Path,
    imported: Imported,
    state: Mapping[str, Tensor],
    shortcuts: Mapping[str, Any],
    normalisation: tuple[tuple[float, ...], tuple[float, ...]],
) -> None:
    """Step 0 of a run that was never started: `--init` takes all of it."""
    assert isinstance(imported.mae, MAEConfig)
    mean, std = normalisation
    data = DataConfig(mean=mean, std=std)
    run = RunConfig(recipe="imported", model=imported.mae, objective=imported.objective, data=data)
    write_json(folder / "config.json", to_dict(run))
    (folder / "checkpoints").mkdir()
    manifest = {"config": to_dict(run), "shortcuts": dict(shortcuts), "environment": {}}
    save_checkpoint(folder / "checkpoints", 0, {"model": state}, {}, manifest)


def _sha256(path: Path) -> str:
    weights = path / "model.safetensors" if path.is_dir() else path
    with open_untrusted(weights.resolve()) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # it has readinto
