"""How does a checkpoint of another project become a run that `--init`, `evaluate`, `embed` and `sample` take?

    DIR/encoder/               the encoder, or the whole of a diffusion transformer, in our format
    DIR/checkpoints/           the same as step 0 of a run; of an autoencoder, where its decoder is one that ours can be
    DIR/config.json            the same as a run's, where there is a checkpoint
    DIR/import.json            where it came from, and what was left behind

Another kind of checkpoint is another line in FAMILIES; another model of transformers, in HF_BODIES (from_hf.py).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from echoless.config import DataConfig, RunConfig, SiTConfig, UViTConfig, ViTConfig, to_dict
from echoless.config.counts import counted
from echoless.config.normalisation import Assumption, Normalisation, assume_usual, require_statistics, stated_by, usual
from echoless.config.options import ImportOptions
from echoless.config.training import IMPORTED
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.export import require_new
from echoless.exchange.foreign import Foreign, Imported, read_foreign, weights_of
from echoless.exchange.from_denoiser import ImportedDenoiser
from echoless.exchange.from_hf import from_hf, hf_family
from echoless.exchange.from_mae import from_authors, from_mae, from_vit
from echoless.exchange.from_sit import from_diffusers_dit, from_sit
from echoless.exchange.from_uvit import from_uvit
from echoless.exchange.target import write_json_file
from echoless.models import outline, sincos_positions
from echoless.runs import save_checkpoint, save_weights
from echoless.runs.open import USES
from echoless.runs.taught import mark_of
from echoless.storage import new_folder, write_json
from echoless.storage.jsonfile import open_untrusted

PIXELS: Normalisation = ((0.5,) * 3, (0.5,) * 3)  # published diffusion models of pixels see -1 .. 1
LATENT_CHANNELS = 4
LATENTS: Normalisation = ((0.0,) * LATENT_CHANNELS, (1.0,) * LATENT_CHANNELS)


class Family(NamedTuple):
    """Checkpoints that share their names. The first family whose `signs` are all there is the one."""

    name: str
    signs: tuple[str, ...]  # tensors that only this family has
    convert: Callable[[Foreign, ImportOptions], Imported | ImportedDenoiser]


FAMILIES = (
    Family("a SiT or DiT as published", ("x_embedder.proj.weight", "final_layer.adaLN_modulation.1.weight"), from_sit),
    Family("a U-ViT as published", ("mid_block.attn.qkv.weight", "decoder_pred.weight"), from_uvit),
    Family("a DiT of diffusers", ("transformer_blocks.0.norm1.linear.weight", "proj_out_2.weight"), from_diffusers_dit),
    Family("a faded masked autoencoder of the paper's authors", ("skip.0.fc.0.weight", "pos_embed"), from_authors),
    Family("a masked autoencoder of facebookresearch/mae", ("decoder_embed.weight", "pos_embed"), from_mae),
    Family("a ViT with timm's tensor names", ("blocks.0.attn.qkv.weight", "pos_embed"), from_vit),
)


@dataclass(frozen=True)
class ImportReport:
    """What was found, what was written, what was dropped, what was assumed."""

    out: Path
    family: str
    encoder: ViTConfig | UViTConfig | SiTConfig
    has_decoder: bool
    dropped: tuple[str, ...]
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        config, (height, width) = self.encoder, self.encoder.image_size
        lines = [
            f"read {self.family}: width {config.width}, {config.blocks} blocks, {config.heads} heads, patch "
            f"{config.patch_size} at {height} x {width}, {counted(config.channels, 'channel')}, alpha_min "
            f"{config.shortcuts.alpha_min}",
            f"dropped: {', '.join(self.dropped) or 'nothing'}",
            *(f"assumed: {note}" for note in self.notes),
            f"wrote {self.out}: {self._written}",
            f"usage: echoless pretrain DATA --out RUN --init {self.out}; also in {self._others}",
        ]
        return "\n".join(lines)

    @property
    def _written(self) -> str:
        if self.encoder.denoises:
            return "the network"
        return "encoder and decoder" if self.has_decoder else "the encoder"

    @property
    def _others(self) -> str:
        return USES[self.encoder.kind]


def import_checkpoint(file: str | Path, out: str | Path, **options: Any) -> ImportReport:
    """Read a checkpoint of others into our format. The keywords are the fields of `ImportOptions`."""
    return import_with(ImportOptions(file, out=out, **options))


def import_with(options: ImportOptions) -> ImportReport:
    file, out = Path(options.file), Path(options.out)
    require_new(out)
    ours = read_parts(read_foreign(file), options)
    with new_folder(out) as temporary:
        save_weights(temporary / "encoder", ours.state, ours.described, ours.shortcuts)
        if ours.run is not None:
            _write_checkpoint(temporary, ours)
        record = {"file": file.name, "sha256": _sha256(file), "family": ours.family, "dropped": list(ours.dropped)}
        record |= {} if ours.assumed is None else {"assumed_normalisation": ours.assumed.normalisation}
        write_json_file(temporary / "import.json", record)
    decoder = not ours.config.denoises and ours.run is not None
    return ImportReport(out, ours.family, ours.config, decoder, ours.dropped, ours.notes)


def read_parts(foreign: Foreign, options: ImportOptions) -> Parts:
    """What a checkpoint of others is here; refused where it cannot be held."""
    family = _family(foreign)
    imported = _converted(family, foreign, options)
    if isinstance(imported, ImportedDenoiser):
        return replace(_denoiser_parts(imported, foreign, options), family=family.name, notes=imported.notes)
    return replace(_encoder_parts(imported, foreign, options), family=family.name)


@dataclass(frozen=True, kw_only=True)
class Parts:
    """What is written: a body with its description and, where it can start a run whole, the run it would be."""

    config: ViTConfig | UViTConfig | SiTConfig
    state: dict[str, Tensor]
    described: dict[str, Any]
    shortcuts: dict[str, Any]
    dropped: tuple[str, ...]
    run: RunConfig | None = None
    run_state: dict[str, Tensor] = field(default_factory=dict)
    head_state: dict[str, Tensor] = field(default_factory=dict)  # of DINO: for a run that starts from the weights
    family: str = ""
    notes: tuple[str, ...] = ()  # what was assumed
    assumed: Assumption | None = None  # of these, the normalisation


def _encoder_parts(imported: Imported, foreign: Foreign, options: ImportOptions) -> Parts:
    imported = _with_fixed_positions(imported)
    channels = imported.encoder.channels
    mean, std = _normalisation(channels, foreign, options, usual(channels))
    assumed = None if all(_stated(foreign, options, channels)) else assume_usual(foreign.path, channels)
    state, shortcuts = _checked(imported.encoder, imported.encoder_state, foreign.path)
    parts = Parts(
        config=imported.encoder,
        state=state,
        described={
            "kind": "vit",
            "model": to_dict(imported.encoder),
            "mean": list(mean),
            "std": list(std),
            **mark_of(foreign.path),
        },
        shortcuts=shortcuts,
        dropped=(*foreign.dropped, *imported.dropped),
        head_state=imported.head_state,
        notes=() if assumed is None else (assumed.sentence,),
        assumed=assumed,
    )
    if imported.mae is None:
        return parts
    both = {"encoder": imported.encoder_state, "decoder": imported.decoder_state}
    named = {f"{part}.{name}": tensor for part, tensors in both.items() for name, tensor in tensors.items()}
    run = RunConfig(
        recipe=IMPORTED, model=imported.mae, objective=imported.objective, data=DataConfig(mean=mean, std=std)
    )
    return replace(parts, run=run, run_state=_checked(imported.mae, named, foreign.path)[0])


def _denoiser_parts(imported: ImportedDenoiser, foreign: Foreign, options: ImportOptions) -> Parts:
    model, objective = imported.model, imported.objective
    latents = model.channels == LATENT_CHANNELS  # which are used as they are
    default = LATENTS if latents else PIXELS if model.channels == 3 else usual(model.channels)
    mean, std = _normalisation(model.channels, foreign, options, default, latents=latents)
    state, shortcuts = _checked(model, imported.state, foreign.path)
    described = {
        "kind": model.kind,
        "model": to_dict(model),
        "objective": to_dict(objective),
        "mean": list(mean),
        "std": list(std),
    }
    return Parts(
        config=model,
        state=state,
        described=described,
        shortcuts=shortcuts,
        dropped=(*foreign.dropped, *imported.dropped),
        run=RunConfig(recipe=IMPORTED, model=model, objective=objective, data=DataConfig(mean=mean, std=std)),
        run_state=state,
    )


def _family(foreign: Foreign) -> Family:
    """By its model_type, where it is a folder of transformers; else by its tensors."""
    if "model_type" in foreign.settings:
        try:
            return Family(hf_family(foreign.settings["model_type"]), (), from_hf)
        except UntrustedFile as error:
            raise UntrustedFile(f"{foreign.path}: {error}") from None
    for family in FAMILIES:
        if all(sign in foreign.tensors for sign in family.signs):
            return family
    known = "; ".join([*dict.fromkeys(family.name for family in FAMILIES), "a folder of transformers"])
    some = ", ".join(sorted(foreign.tensors)[:3]) or "nothing"
    raise UntrustedFile(f"{foreign.path} holds {some} ..., which is not a known checkpoint; allowed: {known}")


def _converted(family: Family, foreign: Foreign, options: ImportOptions) -> Imported | ImportedDenoiser:
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


def _checked(config: Any, state: Mapping[str, Tensor], file: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The state in float32 and the shortcuts, if it fits the config exactly and is finite."""
    model = outline(config)
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
    channels: int, foreign: Foreign, options: ImportOptions, default: Normalisation, *, latents: bool = False
) -> Normalisation:
    """As given, as the folder says, or as usual."""
    chosen = []
    for name, stated, otherwise in zip(("mean", "std"), _stated(foreign, options, channels), default):
        values = stated or otherwise
        numbers = isinstance(values, list | tuple) and all(isinstance(value, int | float) for value in values)
        if numbers and not latents:
            require_statistics(name, values, channels)
        good = numbers and len(values) == channels and all(abs(value) < 1e6 for value in values)
        if not good or (name == "std" and min(values) <= 0):
            raise ConfigError(f"{name} is {values!r}; allowed: {channels} numbers, one for each channel")
        chosen.append(tuple(float(value) for value in values))
    return chosen[0], chosen[1]


def _stated(foreign: Foreign, options: ImportOptions, channels: int) -> tuple[Any, Any]:
    """Mean and deviation as they are given, or as the folder has them; None where nobody says."""
    mean, std = stated_by(foreign.processor, channels)
    return options.mean or mean, options.std or std


def _write_checkpoint(folder: Path, ours: Parts) -> None:
    """Step 0 of a run that was never started: `--init` takes all of it."""
    assert ours.run is not None
    write_json(folder / "config.json", to_dict(ours.run))
    (folder / "checkpoints").mkdir()
    manifest = {"config": to_dict(ours.run), "shortcuts": dict(ours.shortcuts), "environment": {}}
    save_checkpoint(folder / "checkpoints", 0, {"model": ours.run_state}, {}, manifest)


def _sha256(path: Path) -> str:
    """Of the file with the weights; of several, one after the other."""
    digest = hashlib.sha256()
    for part in weights_of(path):
        with open_untrusted(part) as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()
