"""Do patch features cluster by object? The spectral embedding of many images at once, and its mIoU."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from echoless.config.metrics import Metric
from echoless.data import Batch, Images, evaluation_batches
from echoless.data.masks import VOID
from echoless.data.subset import draw_images, draw_protocol
from echoless.errors import ConfigError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import CHUNK, check_channels, noise_offset
from echoless.evaluation.stored_patches import Stored, stored_for
from echoless.measures import (
    Segmentation,
    affinity_graph,
    bootstrap_interval,
    cluster_tokens,
    confusion_matrix,
    confusion_per_image,
    hungarian_miou,
    labelled_miou,
    many_to_one_miou,
    maps_to_vectors,
    spectral_embedding,
    stochastic_embedding,
    to_rgb,
    upsample_labels,
)
from echoless.randomness import generator_for

DIRECT_TOKENS = 40_000  # above it, the graph's eigenvectors are found by the paper's stochastic optimisation


@dataclass(frozen=True)
class SpectralMaps:
    """images_I3HW in [0, 1] beside rgb_I3hw, one colour scale for all; the rest where there are masks."""

    images_ICHW: Tensor
    rgb_I3hw: Tensor
    metrics: tuple[Metric, ...] = ()
    clusters_IHW: Tensor | None = None
    truth_IHW: Tensor | None = None


def spectral_maps(
    encoder: Encoder,
    images: Images,
    *,
    layers: list[str],
    count: int,
    seed: int,
    stored: Stored = (),
    **protocol: Any,
) -> SpectralMaps:
    """On `count` images, drawn by `seed`.

    Where the set has label maps, there are as many clusters as classes, and each cluster is one class (Hungarian
    matching). Where it has masks of one object each, background is a class too, and there is a second mIoU: each
    cluster is background or object, by most of its pixels. Features may separate objects from the background long
    before they separate classes.
    """
    check_channels(encoder, images)
    if encoder.grid is None or not encoder.has_class_token:
        raise ConfigError(f"{encoder.name} has no grid of patch tokens; the spectral embedding needs one")
    ids = draw_images(images, count, seed=seed)
    truth = class_maps(images, ids, encoder)
    tokens = patch_tokens(encoder, images, ids, layers, stored)
    vectors_TK, solver = _embed(tokens, dims=_dims(images, truth), seed=seed)
    rgb = to_rgb(vectors_TK, len(ids), *encoder.grid)
    mean, std = (torch.tensor(values)[:, None, None] for values in (encoder.mean, encoder.std))
    shown = (pictures_of(encoder, images, ids) * std + mean).clamp(0, 1)
    if truth is None:
        return SpectralMaps(shown, rgb)
    classes = class_count(images, truth)
    clusters = cluster_tokens(vectors_TK, classes, seed=seed).view(len(ids), *encoder.grid)
    clusters = upsample_labels(clusters, *truth.shape[1:])
    protocol = {**protocol, "layers": ",".join(layers), "classes": classes, "solver": solver, "seed": seed}
    protocol |= draw_protocol(images, count) | masks_protocol(images, truth)
    segments, by_class = _score("miou", hungarian_miou, clusters, truth, protocol)
    if images.label_maps is not None:  # of scenes: there is no one object and no background
        return SpectralMaps(shown, rgb, (by_class,), segments, truth)
    merged = {**protocol, "classes": 2, "clusters": classes, "match": "many to one"}
    _, by_object = _score("miou_object", many_to_one_miou, clusters, truth.clamp(max=1), merged)
    return SpectralMaps(shown, rgb, (by_class, by_object), segments, truth)


def _score(
    name: str,
    match: Callable[[Tensor], Segmentation],
    clusters_IHW: Tensor,
    truth_IHW: Tensor,
    protocol: dict[str, Any],
) -> tuple[Tensor, Metric]:
    """The clusters by the classes that they are matched to, and their mIoU.

    Its interval is over images; clusters and matching stay as they are for all of them.
    """
    clusters = int(clusters_IHW.max()) + 1
    classes = max(clusters, int(truth_IHW.max()) + 1)
    matched = match(confusion_matrix(clusters_IHW, truth_IHW, clusters, classes))
    segments_IHW = matched.class_of_cluster[clusters_IHW]
    confusion_ICC = confusion_per_image(segments_IHW, truth_IHW, classes)
    miou, low, high = bootstrap_interval(
        lambda index: labelled_miou(confusion_ICC[index].sum(dim=0)),
        len(confusion_ICC),
        generator=generator_for(protocol["seed"], "probe", 1_000_000),
    )
    return segments_IHW, Metric(metric=name, value=miou, n=len(truth_IHW), interval=(low, high), protocol=protocol)


def pictures_of(encoder: Encoder, images: Images, ids: list[int]) -> Tensor:
    """images_ICHW as the encoder sees them."""
    return torch.cat([batch.images_BCHW for batch in _batches(encoder, images, ids)])


def patch_tokens(
    encoder: Encoder, images: Images, ids: list[int], layers: list[str], stored: Stored = ()
) -> list[Tensor]:
    """The patch tokens (I, P, D) of each layer: from a file, where they are stored, else computed."""
    if (file := stored_for(stored, encoder, images, layers)) is not None:
        return [file.tokens(encoder, images, ids, layer) for layer in layers]
    tokens: dict[str, list[Tensor]] = {layer: [] for layer in layers}
    offset = noise_offset(images)
    for batch in _batches(encoder, images, ids):
        for layer, values in encoder.tokens_of(batch.images_BCHW, layers, batch.ids_B + offset).items():
            tokens[layer].append(encoder.patches_of(values).float().cpu())
    return [torch.cat(tokens[layer]) for layer in layers]


def _batches(encoder: Encoder, images: Images, ids: list[int]) -> Iterator[Batch]:
    return evaluation_batches(
        images,
        size=encoder.image_size,
        batch_size=CHUNK,
        mean=encoder.mean,
        std=encoder.std,
        ids=ids,
        framing=encoder.dense_framing,
    )


def _dims(images: Images, truth_IHW: Tensor | None) -> int:
    if images.label_maps is not None and truth_IHW is not None:
        return max(3, class_count(images, truth_IHW))
    return max(3, len(images.class_names or ()) + 1)


def _embed(layers: list[Tensor], dims: int, seed: int) -> tuple[Tensor, str]:
    images, patches, _ = layers[0].shape
    if images * patches <= DIRECT_TOKENS:
        return spectral_embedding([affinity_graph(tokens) for tokens in layers], dims).vectors_TK, "direct"
    maps = stochastic_embedding(layers, generator=generator_for(seed, "probe", 2))
    return maps_to_vectors(maps, dims), "stochastic"


def class_maps(images: Images, ids: list[int], encoder: Encoder) -> Tensor | None:
    """classes_IHW of every pixel, VOID where there is none; None where the set does not say it.

    From label maps: at the size of the encoder's input, cropped as its images are. From masks of one object, at their
    own size: background 0, class c as c + 1. The object of an image without a label is no background.
    """
    if images.label_maps is not None:
        view, size, framing = images.label_maps.view, encoder.image_size, encoder.dense_framing
        return torch.from_numpy(np.stack([view(i, size, _shape(images, i), framing) for i in ids]))
    if images.labels is None or images.masks(ids[0]) is None:
        return None
    maps = []
    for index in ids:
        mask = images.masks(index)
        assert mask is not None
        label = int(images.labels[index])
        maps.append(mask.long() * (label + 1 if label >= 0 else VOID))
    return torch.stack(maps)


def _shape(images: Images, index: int) -> tuple[int, int]:
    (pixels_CHW,) = images.get([index]).pixels
    return pixels_CHW.shape[1], pixels_CHW.shape[2]


def class_count(images: Images, truth_IHW: Tensor) -> int:
    """As many as are named, else as many as occur."""
    named = None if images.label_maps is None else images.label_maps.names
    return int(truth_IHW.max()) + 1 if named is None else len(named)


def masks_protocol(images: Images, truth_IHW: Tensor) -> dict[str, Any]:
    """Which label maps a number is of: a hash of all that were used."""
    if images.label_maps is None:
        return {}
    return {"masks": hashlib.sha256(truth_IHW.numpy().tobytes()).hexdigest()[:16]}
