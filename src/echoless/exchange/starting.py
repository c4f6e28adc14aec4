"""How does a run start from a model of another project, without a copy of it on the disk? It is converted in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from echoless.config.options import ImportOptions
from echoless.errors import ConfigError, UntrustedFile
from echoless.exchange.foreign import Foreign, read_foreign
from echoless.exchange.importing import Parts, read_parts
from echoless.models import outline
from echoless.runs.open import Start, TrainedBody, TrainedModel
from echoless.storage import read_json_object


def is_foreign(path: Path) -> bool:
    """Whether it is a folder of transformers, or a file, and not a run or an encoder folder of ours."""
    if path.is_file():
        return True
    config = path / "config.json"
    return config.is_file() and "model_type" in read_json_object(config.resolve())


def open_foreign(path: Path) -> Start:
    """The body, and where it is an autoencoder with a decoder that ours can be, all of it."""
    foreign = read_foreign(path)
    try:
        parts = read_parts(foreign, ImportOptions(path, out=""))
    except ConfigError as error:  # it does not say all that must be known
        raise ConfigError(f"{error} to echoless import {path} --out DIR, and start from DIR") from None
    if parts.config.denoises:
        raise UntrustedFile(f"{path} holds {parts.family}; convert it first: echoless import {path} --out DIR")
    body = TrainedBody(
        name=str(path),
        origin=parts.family,
        is_checkpoint=False,
        step=None,
        config=parts.config,
        model=_filled(parts.config, parts.state),
        mean=tuple(parts.described["mean"]),
        std=tuple(parts.described["std"]),
        objective=None,
        latent=None,
    )
    size = _processed_size(foreign, parts)
    return Start(
        body=body,
        whole=_whole(str(path), parts),
        head=parts.head_state,
        foreign=True,
        image_size=size,
        assumed=parts.assumed,
    )


def _whole(name: str, parts: Parts) -> TrainedModel | None:
    if parts.run is None:
        return None
    model = _filled(parts.run.model, parts.run_state)
    return TrainedModel(name=name, origin=parts.family, step=0, config=parts.run, model=model)


def _filled(config: Any, state: dict[str, torch.Tensor]) -> Any:
    model = outline(config)
    model.load_state_dict(state, assign=True)
    return model.eval()


def _processed_size(foreign: Foreign, parts: Parts) -> tuple[int, int]:
    """What its image processor makes of any image, in whole patches: DINOv2 has positions for 518, and is given 224."""
    settings, patch = foreign.processor, parts.config.patch_size
    given = settings.get("crop_size" if settings.get("do_center_crop") else "size")
    height, width = (given.get("height"), given.get("width")) if isinstance(given, dict) else (given, given)
    if (
        isinstance(height, int)
        and isinstance(width, int)
        and all(s >= patch and s % patch == 0 for s in (height, width))
    ):
        return height, width
    return parts.config.image_size
