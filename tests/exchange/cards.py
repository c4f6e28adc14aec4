"""Small runs with exports of every kind, and what the snippet of a model card computes. Not a test itself."""

from __future__ import annotations

import ast
import builtins
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import echoless
from echoless.config import ShortcutConfig, ViTConfig, to_dict
from echoless.models import ViT
from echoless.runs import save_weights

COLOUR = ViTConfig(
    image_size=(32, 32),
    patch_size=8,
    width=32,
    depth=2,
    heads=2,
    zero_init=False,
    shortcuts=ShortcutConfig(alpha_min=0.6),
)
GREY = replace(COLOUR, channels=1)
# Libraries round half a pixel in other ways: of 32 pixels that is much.
LARGER: dict[str, Any] = {"image_size": (64, 64), "patch_size": 16}
# Name -> encoder, bits of the images of its run, and their height and width.
KINDS: dict[str, tuple[ViTConfig, int, tuple[int, int]]] = {
    "colour": (COLOUR, 8, (60, 96)),
    "grey": (replace(GREY, final_norm=True), 8, (60, 96)),
    "16 bits": (GREY, 16, (60, 96)),
    "16 bits, wide": (replace(GREY, final_norm=True, image_size=(16, 40)), 16, (60, 96)),
    "16 bits, large": (replace(GREY, **LARGER), 16, (300, 401)),
    "large": (replace(COLOUR, **LARGER), 8, (300, 401)),
    "five channels": (replace(COLOUR, channels=5), 8, (60, 96)),
    "16 bits in colour": (COLOUR, 16, (60, 96)),
}
# Pillow opens no file of the others: their snippet has zeros, for arrays that the user puts there.
OF_FILES = ("colour", "grey", "16 bits", "16 bits, wide", "16 bits, large", "large")


def make_run(path: Path, kind: str) -> Path:
    """As if trained on images like `picture`, every weight away from its start; `path` is the run."""
    config, bits, (height, width) = KINDS[kind]
    generator = torch.Generator().manual_seed(0)
    vit = ViT(config, generator)
    with torch.no_grad():
        for name, parameter in vit.named_parameters():
            if name != "cls_token":
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.03)
    described = {
        "kind": "vit",
        "model": to_dict(config),
        "mean": [0.4] * config.channels,
        "std": [0.2] * config.channels,
    }
    save_weights(path / "encoder", vit.state_dict(), described, vit.shortcut_record)
    (path / "about.json").write_text(json.dumps({"data": {"height": height, "width": width, "bits": bits}}))
    return path


def picture(file: Path, kind: str) -> Path:
    """A file with smooth random levels; of 16 bits, they are between 1 % and 40 % of the brightest."""
    config, bits, (height, width) = KINDS[kind]
    coarse = np.random.default_rng(3).random((5, 8, 1 if config.channels == 1 else 3))
    planes = [
        np.asarray(Image.fromarray(plane).resize((width, height), Image.Resampling.BILINEAR))
        for plane in coarse.transpose(2, 0, 1).astype(np.float32)
    ]
    levels = np.stack(planes, axis=-1).squeeze()
    pixels = (600 + 25000 * levels).astype(np.uint16) if bits == 16 and config.channels == 1 else 255 * levels
    Image.fromarray(pixels if pixels.dtype == np.uint16 else pixels.astype(np.uint8)).save(file)
    return file


def usage_of(folder: Path) -> str:
    """The snippet of the card of an export."""
    return (folder / "README.md").read_text().partition("```python\n")[2].partition("```")[0]


def undefined_names(code: str) -> set[str]:
    """Names that the code reads and nothing in it defines."""
    nodes = list(ast.walk(ast.parse(code)))
    names = [node for node in nodes if isinstance(node, ast.Name)]
    imported = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    known = {node.id for node in names if isinstance(node.ctx, ast.Store)} | imported | set(dir(builtins))
    return {node.id for node in names} - known


def run_usage(folder: Path, file: Path) -> dict[str, Any]:
    """What the snippet defines, run as it stands but for the names of the export and of the image."""
    code = usage_of(folder)
    for word, path in (('"photo.jpg"', file), ('"image.png"', file)):
        code = code.replace(word, repr(str(path)))
    known: dict[str, Any] = {}
    with torch.no_grad():
        exec(code.replace('"DIR"', repr(str(folder))).replace("DIR", str(folder)), known)
    return known


def cosine_with_ours(run: Path, export: Path, kind: str) -> float:
    """Of the feature that the snippet of the export computes of a file, and ours; else of the zeros in its place."""
    file, encoder = picture(run / "picture.png", kind), echoless.load(run)
    config, _, _ = KINDS[kind]
    images = encoder.preprocess(file)[None] if kind in OF_FILES else torch.zeros(1, config.channels, *config.image_size)
    theirs, features = torch.as_tensor(run_usage(export, file)["feature"]), encoder.features(images)
    ours = next(tokens for name, tokens in reversed(features.items()) if name.endswith("/+mlp")).mean(dim=1)
    return float(torch.nn.functional.cosine_similarity(theirs, ours.detach()))
