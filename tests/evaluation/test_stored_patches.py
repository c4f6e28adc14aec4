"""`evaluate --patches`: dense measurements of a file that `embed --tokens` wrote are those of the encoder itself."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch

from echoless.data import open_images
from echoless.errors import ConfigError, DataError
from echoless.evaluation import segment
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.feature_table import FeatureTable
from echoless.evaluation.frozen import load
from echoless.evaluation.segment import patch_tokens
from echoless.evaluation.stored_patches import StoredPatches
from echoless.evaluation.table_files import numbers_of
from echoless.verbs.embed import embed
from echoless.verbs.evaluate import evaluate

DENSE = ("tokencut", "segprobe", "spectral")
SETS = {"train": "shapes:150", "test": "shapes:100@test"}
LAYERS = "last,block05/key"


@pytest.fixture(scope="module")
def files(run, tmp_path_factory):
    """Of both sets, in full precision."""
    folder = tmp_path_factory.mktemp("patches")
    for name, data in SETS.items():
        embed(run, data, out=folder / f"{name}.parquet", tokens=True, layer=LAYERS)
    return [folder / f"{name}.parquet" for name in SETS]


def test_the_numbers_are_those_of_the_encoder_and_the_encoder_is_not_asked(run, files, monkeypatch):
    """Every value and interval to 1e-6; the protocols are equal, since no precision was lost."""
    wanted = {**SETS, "images": 40, "metrics": DENSE, "baselines": False}
    computed = evaluate(run, **wanted)
    monkeypatch.setattr(Encoder, "tokens_of", lambda *given: pytest.fail("the encoder was asked"))
    read = evaluate(run, **wanted, patches=files)
    assert {metric.metric for metric in read} == {metric.metric for metric in computed} and len(read) == 5
    for one, other in zip(computed, read):
        assert one.protocol == other.protocol
        np.testing.assert_allclose([one.value, *one.interval], [other.value, *other.interval], atol=1e-6)


def test_baselines_are_computed_beside_the_file(run, files):
    metrics = evaluate(run, **SETS, images=20, metrics=("segprobe",), patches=files)
    assert [metric.protocol["features"] for metric in metrics] == ["trained", "raw pixels", "untrained"]


def test_half_precision_is_named_in_the_protocol(run, tmp_path):
    embed(run, "shapes:60", out=tmp_path / "half.parquet", tokens=True, dtype="fp16")
    wanted = {"train": "shapes:60", "images": 20, "metrics": ("segprobe",), "patches": [tmp_path / "half.parquet"]}
    trained, raw, _ = evaluate(run, **wanted)
    assert trained.protocol["patches"] == "fp16" and "patches" not in raw.protocol


def test_rows_are_found_by_path_in_a_set_of_which_some_are_left_out(run, files):
    """In any order, across groups of rows; images that this evaluation leaves out are in the file."""
    encoder, images = load(run), open_images("shapes:150")
    images.leave_out(frozenset({0, 5}))
    ids = [149, 1, 70, 64, 63]
    (found,) = patch_tokens(encoder, images, ids, ["block05/key"], [StoredPatches(files[0])])
    all_of_them = numbers_of(pq.read_table(files[0])["block05/key"])
    np.testing.assert_array_equal(found, all_of_them[ids].reshape(5, 16, -1))
    (computed,) = patch_tokens(encoder, images, ids, ["block05/key"])
    torch.testing.assert_close(found, computed, atol=2e-6, rtol=0)
    assert FeatureTable(files[0], column="block05/key").at([3]).shape == (1, 4, 4, 64)


def test_what_does_not_belong_to_the_measurement_is_refused_before_any_work(run, files, tmp_path, monkeypatch):
    monkeypatch.setattr(segment, "evaluation_batches", lambda *given, **more: pytest.fail("work was done"))
    wanted = {"train": "shapes:60", "images": 20, "baselines": False}
    with pytest.raises(ConfigError, match="with spectral, tokencut or segprobe in --metrics, which read them"):
        evaluate(run, **wanted, patches=files[:1])
    with pytest.raises(
        DataError, match=r"train\.parquet holds patches of shapes:150 by .*not the images and the weigh"
    ):
        evaluate(run, **wanted, metrics=("segprobe",), patches=files[:1])
    snapshot = min((run / "snapshots").iterdir())
    with pytest.raises(DataError, match="which are not the images and the weights to be measured"):
        evaluate(snapshot, **SETS, metrics=("segprobe",), patches=files)
    embed(run, "shapes:60", out=tmp_path / "one.parquet", tokens=True)
    with pytest.raises(
        DataError, match=r"holds the layers block05/\+mlp; block05/key is measured: give `echoless embed`"
    ):
        evaluate(run, **wanted, metrics=("tokencut",), patches=[tmp_path / "one.parquet"])
    embed(run, "shapes:60", out=tmp_path / "pooled.parquet")
    with pytest.raises(
        DataError, match=r"pooled\.parquet holds no features of patches; give what `echoless embed --tok"
    ):
        evaluate(run, **wanted, metrics=("segprobe",), patches=[tmp_path / "pooled.parquet"])
    with pytest.raises(DataError, match=r"none\.parquet' does not exist"):
        evaluate(run, **wanted, metrics=("segprobe",), patches=[tmp_path / "none.parquet"])
