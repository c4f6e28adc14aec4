"""How is a query image encoded? By the encoder that made the table, from the same layer, pooled in the same way.

Against a table of tiles it is cut into tiles of their size: a whole scan, made as small as one, is like none of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from echoless.config.addresses import is_remote
from echoless.data import resize_and_crop
from echoless.data.decode import DecodeSettings, Undecodable, decode
from echoless.data.resample import Array
from echoless.data.sources import FolderSource
from echoless.data.tiling import PIXEL_LIMIT, corners
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import CHUNK
from echoless.evaluation.feature_table import FeatureTable
from echoless.evaluation.frozen import load

FETCHED = ("timm:", "local-dir:")  # what timm opens: names of models that it looks for in the network


def encoder_of(table: FeatureTable, given: str | None, device: str) -> Encoder:
    """The encoder that made the table, or a refusal: vectors of two encoders have nothing to do with each other."""
    about = table.about
    source = given or about.get("run")
    if source is None:
        raise ConfigError(f"{table.path} does not say which encoder made it; give --encoder RUN")
    if given is None and (is_remote(source) or source.startswith(FETCHED)):
        raise ConfigError(
            f"{table.path} says that {source!r} made it, which may come from the network and is not opened unasked; "
            f"give --encoder {source} to open it"
        )
    noise = float(about["noise"]) if "noise" in about else None
    try:
        encoder = load(source, device=device, noise=noise, latent=about.get("latent"))
    except RunError as error:
        raise RunError(
            f"the encoder of {table.path} cannot be opened ({error}); give --encoder with its new place, or as --query "
            "a path of the table, which needs no encoder"
        ) from None
    if about.get("encoder", encoder.fingerprint) != encoder.fingerprint:
        raise RunError(
            f"{source} is not the encoder that made {table.path}: it is another one, or was trained further; embed the "
            "images again, or give --encoder with the one that made it"
        )
    return encoder


def query_files(query: Path) -> list[Path]:
    """An image file, or the images of a folder."""
    return [query / path for path in FolderSource(query).paths] if query.is_dir() else [query]


class Query(NamedTuple):
    """An image file, or the tile of one that begins at a corner (x, y)."""

    file: Path
    corner: tuple[int, int] | None = None


def read_queries(
    encoder: Encoder, files: Sequence[Path], tile: int | None, left_out: dict[Path, str] | None = None
) -> Iterator[tuple[Query, Array]]:
    """With their pixels. tile: the side of the squares that files are cut into; None: they stay whole.

    left_out: gets the files that cannot be used, with the reasons, unless none can; without it, one is refused.
    """
    settings = DecodeSettings(channels=encoder.channels, reduction=encoder.reduction)
    if tile is not None:
        settings = replace(settings, reduction=None, pixel_limit=PIXEL_LIMIT)
    for file in files:
        try:
            image = decode(file.read_bytes(), settings)
        except (Undecodable, OSError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            if left_out is None:
                raise DataError(f"query {file} cannot be used: {reason}") from None
            left_out[file] = reason
            continue
        if tile is None:
            yield Query(file), image
            continue
        for x, y in corners(image.shape[1:], tile):
            yield Query(file, (x, y)), image[:, y : y + tile, x : x + tile]
    if left_out is not None and len(left_out) == len(files):
        raise DataError(f"query: none of the {len(files)} images can be used; {files[0]}: {left_out[files[0]]}")


def encode(
    encoder: Encoder, read: Iterator[tuple[Query, Array]], table: FeatureTable
) -> tuple[list[Query], np.ndarray]:
    """The queries, and their vectors (M, D).

    Padded to the size of the chunks that `embed` computes, so that an image of the table has its digits.
    """
    layer = table.about.get("layer", encoder.default_layer)
    pooling = table.about.get("pooling", encoder.default_pooling)
    encoder.require_layer(layer)
    whole = "tiles" in table.about or table.about.get("view") == "whole"  # as the rows of the table are
    asked: list[Query] = []
    found = []
    while part := list(islice(read, CHUNK)):
        asked += [query for query, _ in part]
        images_BCHW = _prepared(encoder, [pixels_CHW for _, pixels_CHW in part], whole=whole)
        tokens_BTD = encoder.tokens(images_BCHW, [layer])[layer]
        found.append(encoder.pool(tokens_BTD, pooling)[: len(part)].float().cpu())
    vectors_MD = torch.cat(found).numpy()
    if vectors_MD.shape[1] != table.width:
        raise ConfigError(
            f"{encoder.name} gives vectors of {vectors_MD.shape[1]} numbers, and {table.path} has {table.width}; give "
            "the encoder that made it"
        )
    return asked, vectors_MD


def _prepared(encoder: Encoder, pixels: list[Array], *, whole: bool) -> Tensor:
    framing = encoder.dense_framing if whole else encoder.framing
    images_BCHW = resize_and_crop(pixels, size=encoder.image_size, framing=framing, mean=encoder.mean, std=encoder.std)
    return F.pad(images_BCHW, (0, 0, 0, 0, 0, 0, 0, CHUNK - len(images_BCHW)))
