"""Label maps made by hand, with a known answer: mIoU of spectral clusters, and of the segmentation probe."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from echoless.data import open_images
from echoless.data.reading import attach_masks
from echoless.errors import DataError
from echoless.evaluation.dense import segprobe, tokencut
from echoless.evaluation.frozen import load
from echoless.evaluation.segment import spectral_maps
from echoless.verbs.evaluate import evaluate

SIDE, COUNT = 32, 8


@pytest.fixture
def folders(tmp_path):
    """Images whose left half is red and right half is blue, wider than high, so that evaluation crops them. Maps at
    twice the size: class 3 left, class 9 right, but the middle quarter of the crop is 3 as well; the top is void."""
    for index in range(COUNT):
        pixels = np.zeros((SIDE, SIDE + 16, 3), np.uint8)
        pixels[:, : (SIDE + 16) // 2, 0] = 200 + index
        pixels[:, (SIDE + 16) // 2 :, 2] = 200 + index
        levels = np.full((2 * SIDE, 2 * (SIDE + 16)), 9, np.uint8)
        levels[:, : SIDE + 16 + SIDE // 2] = 3
        levels[: SIDE // 4] = 255
        for name, array in (("images", pixels), ("masks", levels)):
            (tmp_path / name).mkdir(exist_ok=True)
            Image.fromarray(array).save(tmp_path / name / f"{index}.png")
    (tmp_path / "classes.txt").write_text("3 left\n9 right\n")
    return tmp_path


def seen(run, features):
    """An encoder of 8 x 8 patches whose tokens are a function of the patch's mean colour and column."""
    encoder = load(run)

    def tokens(batch, layers):
        colour = torch.nn.functional.adaptive_avg_pool2d(batch, (8, 8))
        patches = features(colour).flatten(2).transpose(1, 2)
        return {"output": torch.cat([patches[:, :1], patches], dim=1)}

    half = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    return replace(encoder, layers=("output",), tokens=tokens, grid=(8, 8), image_size=(SIDE, SIDE), **half)


def by_colour(colour_BCHW):
    red = (colour_BCHW[:, :1] > 0).float()
    return torch.cat([red, 1 - red], dim=1)


def by_column(colour_BCHW):
    columns = torch.eye(8)[:, None].expand(8, 8, 8)
    return columns[None].expand(len(colour_BCHW), -1, -1, -1)


def opened(folders, classes=True):
    images = open_images(folders / "images", cache="off")
    attach_masks(images, str(folders / "masks"), str(folders / "classes.txt") if classes else None, 255)
    return images


def test_the_miou_of_clusters_is_the_one_computed_by_hand(run, folders):
    """Clusters are the two colours. Of the labelled pixels the left cluster is all class 3; of the right one half is
    class 3: intersection over union 2/3 and 1/2, mean 7/12."""
    maps = spectral_maps(seen(run, by_colour), opened(folders), layers=["output"], count=COUNT, seed=0)
    (metric,) = maps.metrics
    assert metric.metric == "miou" and metric.value == pytest.approx(7 / 12, abs=1e-9)
    assert metric.protocol["classes"] == 2 and len(metric.protocol["masks"]) == 16
    assert maps.truth_IHW.shape == (COUNT, SIDE, SIDE) and int((maps.truth_IHW == -1).sum()) == COUNT * SIDE * SIDE // 8


def test_tokens_that_know_their_column_segment_without_error(run, folders):
    metric = segprobe(seen(run, by_column), opened(folders), None, layer="output", count=COUNT, seed=0)
    assert metric.value == 1.0 and metric.n == COUNT // 2 and metric.protocol["classes"] == 2


def test_without_names_every_grey_level_is_a_class(run, folders):
    """Ten classes of which two occur: more clusters than colours, and the same probe."""
    metric = segprobe(seen(run, by_column), opened(folders, classes=False), None, layer="output", count=COUNT, seed=0)
    assert metric.value == 1.0 and metric.protocol["classes"] == 10


def test_an_image_without_a_labelled_pixel_counts_for_nothing(run, folders):
    empty = np.full((2 * SIDE, 2 * (SIDE + 16)), 255, np.uint8)
    Image.fromarray(empty).save(folders / "masks" / "0.png")
    maps = spectral_maps(seen(run, by_colour), opened(folders), layers=["output"], count=COUNT, seed=0)
    assert maps.metrics[0].value == pytest.approx(7 / 12, abs=1e-9)


def test_object_discovery_needs_objects_which_label_maps_do_not_name(run, folders):
    with pytest.raises(DataError, match="tokencut and segprobe need images with masks"):
        tokencut(seen(run, by_colour), opened(folders), layer="output", count=2, seed=0)


def test_the_verb_measures_a_folder_with_masks_and_no_labels(run, folders):
    given = {"train": folders / "images", "masks": folders / "masks", "mask_classes": folders / "classes.txt"}
    found = evaluate(run, metrics=("spectral", "segprobe"), baselines=False, images=COUNT, cache=False, **given)
    assert [metric.metric for metric in found] == ["miou", "segprobe-miou"]
    assert all(0 <= metric.value <= 1 and "masks" in metric.protocol for metric in found)
    (folders / "empty").mkdir()
    with pytest.raises(DataError, match="no label map for 8 of 8 images"):
        evaluate(run, metrics=("spectral",), **given | {"masks": folders / "empty"})
