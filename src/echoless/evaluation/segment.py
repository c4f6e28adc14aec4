"""Do patch features cluster by object? The spectral embedding of many images at once, and its mIoU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from echoless.config.metrics import Metric
from echoless.data import Images, evaluation_batches
from echoless.data.subset import draw_images, draw_protocol
from echoless.errors import ConfigError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import CHUNK, check_channels
from echoless.measures import (
    Segmentation,
    affinity_graph,
    bootstrap_interval,
    cluster_tokens,
    confusion_matrix,
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
    encoder: Encoder, images: Images, *, layers: list[str], count: int, seed: int, **protocol: Any
) -> SpectralMaps:
    """On `count` images, drawn by `seed`.

    Where the set has masks and classes, there are as many clusters as classes and background, and two mIoU: each
    cluster is one class (Hungarian matching), or each is background or object, by most of its pixels. Features may
    separate objects from the background long before they separate classes.
    """
    check_channels(encoder, images)
    if encoder.grid is None or not encoder.has_class_token:
        raise ConfigError(f"{encoder.name} has no grid of patch tokens; the spectral embedding needs one")
    ids = draw_images(images, count, seed=seed)
    pictures, tokens = patch_tokens(encoder, images, ids, layers)
    vectors_TK, solver = _embed(tokens, dims=_dims(images), seed=seed)
    rgb = to_rgb(vectors_TK, len(ids), *encoder.grid)
    mean, std = (torch.tensor(values)[:, None, None] for values in (encoder.mean, encoder.std))
    shown = (pictures * std + mean).clamp(0, 1)
    truth = class_maps(images, ids)
    if truth is None:
        return SpectralMaps(shown, rgb)
    classes = int(truth.max()) + 1
    clusters = cluster_tokens(vectors_TK, classes, seed=seed).view(len(ids), *encoder.grid)
    clusters = upsample_labels(clusters, *truth.shape[1:])
    protocol = {**protocol, "layers": ",".join(layers), "classes": classes, "solver": solver, "seed": seed}
    protocol |= draw_protocol(images, count)
    segments, by_class = _score("miou", hungarian_miou, clusters, truth, protocol)
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
    clusters, classes = int(clusters_IHW.max()) + 1, int(truth_IHW.max()) + 1
    matched = match(confusion_matrix(clusters_IHW, truth_IHW, clusters, classes))
    segments_IHW = matched.class_of_cluster[clusters_IHW]
    confusion_ICC = torch.stack([confusion_matrix(*pair, classes, classes) for pair in zip(segments_IHW, truth_IHW)])
    miou, low, high = bootstrap_interval(
        lambda index: labelled_miou(confusion_ICC[index].sum(dim=0)),
        len(confusion_ICC),
        generator=generator_for(protocol["seed"], "probe", 1_000_000),
    )
    return segments_IHW, Metric(metric=name, value=miou, n=len(truth_IHW), interval=(low, high), protocol=protocol)


def patch_tokens(encoder: Encoder, images: Images, ids: list[int], layers: list[str]) -> tuple[Tensor, list[Tensor]]:
    """The images as the encoder sees them, and the patch tokens (I, P, D) of each layer."""
    pictures: list[Tensor] = []
    tokens: dict[str, list[Tensor]] = {layer: [] for layer in layers}
    batches = evaluation_batches(
        images,
        size=encoder.image_size,
        batch_size=CHUNK,
        mean=encoder.mean,
        std=encoder.std,
        ids=ids,
        framing=replace(encoder.framing, share=1.0),  # masks are of the whole image
    )
    for batch in batches:
        pictures.append(batch.images_BCHW)
        for layer, values in encoder.tokens(batch.images_BCHW, layers).items():
            tokens[layer].append(values[:, int(encoder.has_class_token) :].float().cpu())
    return torch.cat(pictures), [torch.cat(tokens[layer]) for layer in layers]


def _dims(images: Images) -> int:
    return max(3, len(images.class_names or ()) + 1)


def _embed(layers: list[Tensor], dims: int, seed: int) -> tuple[Tensor, str]:
    images, patches, _ = layers[0].shape
    if images * patches <= DIRECT_TOKENS:
        return spectral_embedding([affinity_graph(tokens) for tokens in layers], dims).vectors_TK, "direct"
    maps = stochastic_embedding(layers, generator=generator_for(seed, "probe", 2))
    return maps_to_vectors(maps, dims), "stochastic"


def class_maps(images: Images, ids: list[int]) -> Tensor | None:
    """Background 0, class c as c + 1."""
    if images.labels is None or images.masks(ids[0]) is None:
        return None
    maps = []
    for index in ids:
        mask = images.masks(index)
        assert mask is not None
        maps.append(mask.long() * (int(images.labels[index]) + 1))
    return torch.stack(maps)
