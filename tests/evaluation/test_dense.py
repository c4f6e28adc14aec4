"""`evaluate --metrics tokencut segprobe`: tokens that know score what the grid allows; baselines stand beside a run.

Run alone: pytest tests/evaluation/test_dense.py -s.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from echoless.cli.main import main
from echoless.data import open_images
from echoless.data.masks import VOID
from echoless.data.subset import draw_images
from echoless.errors import ConfigError, DataError
from echoless.evaluation.dense import raw_patches, segprobe, tokencut
from echoless.evaluation.encoder import raw_pixels
from echoless.evaluation.frozen import load
from echoless.evaluation.segment import class_maps
from echoless.runs.open import load_body
from echoless.verbs.evaluate import evaluate


@pytest.fixture(scope="module")
def images():
    return open_images("shapes:120")


def knowing(encoder, images, count):
    """An encoder of a fine grid whose tokens say outright which patches the object covers, and its class."""
    rows, columns = 16, 16
    order, shown = draw_images(images, count, seed=0), []

    def tokens(batch, layers):
        ids = range(len(shown), len(shown) + len(batch))
        shown.extend(ids)
        numbers = [order[index % count] for index in ids]  # the last chunk is filled up
        masks = torch.stack([images.masks(number) for number in numbers]).float()
        covered = torch.nn.functional.adaptive_avg_pool2d(masks[:, None], (rows, columns)).flatten(1) > 0.5
        classes = torch.eye(11)[(images.labels[numbers] + 1)[:, None] * covered]
        return {"output": torch.cat([torch.ones(len(batch), 1, 11), classes], dim=1)}

    return replace(encoder, layers=("output",), tokens=tokens, grid=(rows, columns))


def test_tokens_that_know_the_object_score_as_high_as_the_patch_grid_allows(run, images):
    encoder = load(run)
    located, overlap = tokencut(knowing(encoder, images, 60), images, layer="output", count=60, seed=0)
    print(f"knowing tokens: CorLoc {located.value:.3f}, mask IoU {overlap.value:.3f}")
    assert located.value > 0.8 and overlap.value > 0.7
    probed = segprobe(knowing(encoder, images, 120), images, None, layer="output", count=60, seed=0)
    print(f"knowing tokens: segmentation probe mIoU {probed.value:.3f}, n {probed.n}")
    assert probed.value > 0.7 and probed.n == 60
    for metric in (located, overlap, probed):
        assert metric.interval[0] <= metric.value <= metric.interval[1]


def test_every_dense_number_has_its_protocol_interval_and_baselines(run):
    wanted = {"train": "shapes:80", "test": "shapes:60@test", "images": 40, "metrics": ("tokencut", "segprobe")}
    metrics = evaluate(run, **wanted)
    again = evaluate(run, **wanted)
    assert metrics == again, "two looks must give the same digits"
    named = {(metric.metric, metric.protocol["features"]) for metric in metrics}
    names, rows = ("tokencut-corloc", "tokencut-iou", "segprobe-miou"), ("trained", "raw pixels", "untrained")
    assert named == {(name, row) for name in names for row in rows}
    for metric in metrics:
        assert metric.n == 40 and metric.interval[0] <= metric.value <= metric.interval[1], metric
        assert {"layer", "seed"} <= metric.protocol.keys() and metric.protocol["drawn"] == "stratified"


def test_tokencut_compares_the_keys_of_the_last_attention_or_the_blocks_outputs(run):
    """The keys are computed here from the weights: the second third of qkv on the normalised input of the block."""
    wanted = {"train": "shapes:40", "images": 20, "metrics": ("tokencut",), "baselines": False}
    by = {how: evaluate(run, **wanted, tokencut=how)[0].protocol for how in ("keys", "outputs")}
    assert by["keys"]["tokens"] == "keys" and by["keys"]["layer"].endswith("/key")
    assert by["outputs"]["tokens"] == "outputs" and by["outputs"]["layer"].endswith("/+mlp")
    assert by["keys"]["component"] == by["outputs"]["component"] == "seed"
    encoder, model = load(run), load_body(run).model
    batch = torch.rand(2, encoder.channels, *encoder.image_size, generator=torch.Generator().manual_seed(0))
    last = len(model.blocks) - 1
    layers = [f"block{last:02d}/key", f"block{last - 1:02d}/+mlp"]
    tokens = encoder.tokens(batch, layers)
    block = model.blocks[last]
    with torch.no_grad():
        keys = block.attn.qkv(block.norm1(tokens[layers[1]])).chunk(3, dim=-1)[1]
    torch.testing.assert_close(tokens[layers[0]], keys, rtol=1e-5, atol=1e-6)
    assert not [name for name in encoder.features(batch) if name.endswith("/key")], "only where it is asked for"


def test_raw_patches_are_the_pixels_of_each_patch(run, images):
    encoder = load(run)
    raw = raw_patches(encoder)
    batch = torch.rand(2, encoder.channels, *encoder.image_size)
    patch = encoder.image_size[0] // encoder.grid[0]
    first = raw.tokens(batch, ["output"])["output"][0, 0]
    assert first.sort().values.equal(batch[0, :, :patch, :patch].flatten().sort().values)


def test_sets_without_masks_and_encoders_without_patches_are_refused_in_a_sentence(run, images, tmp_path, capsys):
    encoder = load(run)
    bare = replace(images, mask_of=None)
    with pytest.raises(DataError, match="need images with masks"):
        tokencut(encoder, bare, layer=encoder.default_layer, count=5, seed=0)
    with pytest.raises(ConfigError, match="no grid"):
        tokencut(raw_pixels(encoder), images, layer="output", count=5, seed=0)
    with pytest.raises(DataError, match="aspect ratios must be equal"):
        tokencut(replace(encoder, image_size=(32, 16)), images, layer=encoder.default_layer, count=5, seed=0)
    assert main(["evaluate", str(run), "--train", "shapes:20", "--metrics", "tokencut", "--images", "0"]) != 0
    assert "images is 0" in capsys.readouterr().err


def test_the_object_of_an_image_without_a_label_is_no_background(run):
    """-1 became class 0, so that segmentation learned and counted half of the objects as background."""
    partly = open_images("shapes:8")
    partly.labels[::2] = -1
    truth = class_maps(partly, list(range(8)), load(run))
    for index in range(8):
        inside = truth[index][partly.masks(index)].unique().tolist()
        assert inside == [VOID if index % 2 == 0 else int(partly.labels[index]) + 1]
        assert not truth[index][~partly.masks(index)].any()
