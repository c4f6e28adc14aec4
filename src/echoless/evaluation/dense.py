"""How well do patch features locate and segment objects? TokenCut and a segmentation probe, on images with masks.

Without a test set the probe learns on the first half of the images and is tested on the other.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from echoless.config.metrics import Metric
from echoless.data import Images
from echoless.data.subset import draw_images, draw_protocol
from echoless.errors import ConfigError, DataError
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.encoder import Encoder, of_pixels
from echoless.evaluation.extract import check_channels
from echoless.evaluation.segment import class_count, class_maps, masks_protocol, patch_tokens
from echoless.evaluation.stored_patches import Stored, stored_for
from echoless.measures import (
    accuracy_interval,
    bootstrap_interval,
    bounding_boxes,
    box_iou,
    confusion_per_image,
    discover_objects,
    fit_segmentation_probe,
    labelled_miou,
    mask_iou,
    segment,
    upsample_labels,
)
from echoless.measures.tokencut import TAU
from echoless.models import patchify
from echoless.randomness import generator_for

FOUND = 0.5  # box overlap from which on an object counts as found (CorLoc)


def check_segprobe(evaluation: Evaluation) -> None:
    layer = FeatureSource(evaluation, "trained", evaluation.encoder).view.layer
    for images in (evaluation.train, evaluation.test_or_train):
        check_class_maps(evaluation.encoder, images)
        stored_for(evaluation.stored, evaluation.encoder, images, [layer])


def check_tokencut(evaluation: Evaluation) -> None:
    check_masks(evaluation.encoder, evaluation.test_or_train)
    if evaluation.options.tokencut == "keys" and not evaluation.encoder.has_keys:
        raise ConfigError(f"{evaluation.encoder.name} gives no keys of its attention; give --tokencut outputs")
    layer = _tokencut_layer(FeatureSource(evaluation, "trained", evaluation.encoder))
    stored_for(evaluation.stored, evaluation.encoder, evaluation.test_or_train, [layer])


def measure_tokencut(source: FeatureSource) -> list[Metric]:
    encoder, layer = _patches(source)
    options, images = source.evaluation.options, source.evaluation.test_or_train
    protocol = {**source.dense_protocol, "tokens": "pixels"}
    if source.name != "raw pixels":
        layer, protocol["tokens"] = _tokencut_layer(source), options.tokencut
    stored = source.evaluation.stored
    return list(
        tokencut(encoder, images, layer=layer, count=options.images, seed=options.seed, stored=stored, **protocol)
    )


def _tokencut_layer(source: FeatureSource) -> str:
    layer = source.view.layer
    return key_layer(source.encoder, layer) if source.evaluation.options.tokencut == "keys" else layer


def key_layer(encoder: Encoder, layer: str) -> str:
    """The keys of the block that gives this layer; of the last one, for what comes after it."""
    block = layer.split("/")[0]
    if not block.startswith("block"):
        block = [name for name in encoder.layers if name.startswith("block")][-1].split("/")[0]
    return f"{block}/key"


def measure_segprobe(source: FeatureSource) -> list[Metric]:
    encoder, layer = _patches(source)
    evaluation, options = source.evaluation, source.evaluation.options
    return [
        segprobe(
            encoder,
            evaluation.train,
            evaluation.test,
            layer=layer,
            count=options.images,
            seed=options.seed,
            stored=evaluation.stored,
            **source.dense_protocol,
        )
    ]


def _patches(source: FeatureSource) -> tuple[Encoder, str]:
    """The encoder and the layer of its patch tokens; raw pixels are those of the patch."""
    if source.name == "raw pixels":
        pixels = raw_patches(source.evaluation.encoder)
        return pixels, pixels.default_layer
    return source.encoder, source.view.layer


def tokencut(
    encoder: Encoder, images: Images, *, layer: str, count: int, seed: int, stored: Stored = (), **protocol: Any
) -> tuple[Metric, Metric]:
    """CorLoc (share of objects whose box is found) and the mean overlap of masks, on `count` images drawn by `seed`."""
    check_masks(encoder, images)
    ids = _drawn(images, count, seed, at_least=1)
    truth_IHW = _masks(images, ids)
    assert encoder.grid is not None
    (tokens_IPD,) = patch_tokens(encoder, images, ids, [layer], stored)
    objects_Ihw = discover_objects(tokens_IPD, encoder.grid, component="seed")
    found_IHW = upsample_labels(objects_Ihw, *truth_IHW.shape[1:]).bool()
    right_I = box_iou(bounding_boxes(found_IHW), bounding_boxes(truth_IHW)) >= FOUND
    overlap_I = mask_iou(found_IHW, truth_IHW)
    protocol = {**protocol, "layer": layer, "tau": TAU, "component": "seed", "seed": seed}
    protocol |= draw_protocol(images, count)
    located = accuracy_interval(right_I, generator=generator_for(seed, "probe", 1_000_000))
    mean = bootstrap_interval(
        lambda index: float(overlap_I[index].mean()), len(ids), generator=generator_for(seed, "probe", 1_000_001)
    )
    return (
        Metric(
            metric="tokencut-corloc",
            value=located.value,
            n=len(ids),
            interval=located[1:],
            protocol={**protocol, "box_iou": FOUND},
        ),
        Metric(metric="tokencut-iou", value=mean.value, n=len(ids), interval=mean[1:], protocol=protocol),
    )


def segprobe(
    encoder: Encoder,
    train: Images,
    test: Images | None,
    *,
    layer: str,
    count: int,
    seed: int,
    stored: Stored = (),
    **protocol: Any,
) -> Metric:
    """mIoU over background and classes on held-out pixels, from `count` images of each set, drawn by `seed`."""
    check_class_maps(encoder, train)
    assert encoder.grid is not None
    fitted, predicted, held_out = _halves(train, test, count, seed)
    parts = ((train, fitted), (held_out, predicted))
    truths = [_classes(images, ids, encoder) for images, ids in parts]
    classes = max(class_count(images, truth) for (images, _), truth in zip(parts, truths))
    tokens = [patch_tokens(encoder, images, ids, [layer], stored)[0] for images, ids in parts]
    generator = generator_for(seed, "probe", 1)
    copies_I = train.groups_of(torch.tensor(fitted))
    probe = fit_segmentation_probe(tokens[0], truths[0], encoder.grid, classes, generator=generator, groups_I=copies_I)
    height, width = truths[1].shape[1:]
    confusion_ICC = confusion_per_image(segment(probe, tokens[1], encoder.grid, (height, width)), truths[1], classes)
    value, low, high = bootstrap_interval(
        lambda index: labelled_miou(confusion_ICC[index].sum(dim=0)),
        len(predicted),
        generator=generator_for(seed, "probe", 1_000_000),
    )
    protocol = {**protocol, "layer": layer, "probe": "quick", "classes": classes, "train_n": len(fitted), "seed": seed}
    protocol |= draw_protocol(held_out, len(predicted)) | masks_protocol(held_out, truths[1])
    return Metric(metric="segprobe-miou", value=value, n=len(predicted), interval=(low, high), protocol=protocol)


def raw_patches(encoder: Encoder) -> Encoder:
    """The baseline of dense measurements: the pixels of a patch as its feature."""
    require_grid(encoder)
    assert encoder.grid is not None
    size, patch = encoder.image_size, encoder.image_size[0] // encoder.grid[0]
    about = repr((size, patch, encoder.channels, encoder.mean, encoder.std))
    patches = of_pixels(encoder, lambda images_BCHW: patchify(images_BCHW, patch), ["raw patches", about])
    return replace(patches, grid=encoder.grid)


def require_grid(encoder: Encoder) -> None:
    if encoder.grid is None:
        raise ConfigError(f"{encoder.name} has no grid of patch tokens; tokencut and segprobe need one")


def check_class_maps(encoder: Encoder, images: Images) -> None:
    """Refuses a set that does not say the class of its pixels: by label maps, or by labels and masks of objects."""
    if images.label_maps is None:
        check_masks(encoder, images)
        return
    require_grid(encoder)
    check_channels(encoder, images)


def check_masks(encoder: Encoder, images: Images) -> None:
    """Refuses a set without masks of objects, and proportions that the encoder would crop."""
    require_grid(encoder)
    check_channels(encoder, images)
    first = images.masks(_drawn(images, 1, 0, at_least=1)[0])
    if first is None:
        raise DataError(
            "tokencut and segprobe need images with masks, such as `shapes`; these images have none (segprobe also "
            "takes --masks FOLDER)"
        )
    (height, width), (rows, columns) = first.shape, encoder.image_size
    if height * columns != width * rows:
        raise DataError(
            f"the masks are {height} x {width}, the encoder input {rows} x {columns}; aspect ratios must be equal"
        )


def _masks(images: Images, ids: list[int]) -> Tensor:
    """masks_IHW, bool."""
    return torch.stack([mask for index in ids if (mask := images.masks(index)) is not None])


def _classes(images: Images, ids: list[int], encoder: Encoder) -> Tensor:
    """classes_IHW, as `class_maps` has it."""
    truth = class_maps(images, ids, encoder)
    if truth is None:
        raise DataError("segprobe needs images with labels; these images have none")
    return truth


def _drawn(images: Images, count: int, seed: int, at_least: int) -> list[int]:
    ids = draw_images(images, count, seed=seed)
    if len(ids) < at_least:
        raise DataError(f"the data has {len(ids)} usable images; allowed: {at_least} or more")
    return ids


def _halves(train: Images, test: Images | None, count: int, seed: int) -> tuple[list[int], list[int], Images]:
    if test is not None:
        return _drawn(train, count, seed, at_least=1), _drawn(test, count, seed, at_least=1), test
    ids = _drawn(train, 2 * count, seed, at_least=2)
    middle = len(ids) // 2
    return ids[:middle], ids[middle:], train
