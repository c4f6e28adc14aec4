"""The probe while training: the numbers of `evaluate` at the same step, their cost, and the same run without it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from echoless.errors import ConfigError, DataError
from echoless.verbs import probing
from echoless.verbs.evaluate import evaluate
from echoless.verbs.pretrain import pretrain

SMALL = {"recipe": "demo", "max_steps": 4, "batch_size": 8, "patch_size": 16, "log_every": 3, "snapshot_every": 2}
PROBE = {"probe_every": 2, "probe_data": "shapes:80@test"}


def lines(run: Path) -> dict[int, dict]:
    return {line["step"]: line for line in map(json.loads, (run / "metrics.jsonl").read_text().splitlines())}


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """The same run with and without a probe, on two threads: more than one may round differently."""
    folder, threads = tmp_path_factory.mktemp("probing"), torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert pretrain("shapes:40", out=folder / "plain", **SMALL)
        assert pretrain("shapes:40", out=folder / "probed", **SMALL, **PROBE)
    finally:
        torch.set_num_threads(threads)
    return folder


def test_a_run_computes_the_same_with_a_probe(runs):
    for name in ("encoder/model.safetensors", "checkpoints/step-00000004/optim.safetensors", "config.json"):
        assert (runs / "plain" / name).read_bytes() == (runs / "probed" / name).read_bytes()
    plain, probed = lines(runs / "plain"), lines(runs / "probed")
    assert set(plain) == {1, 3, 4} and set(probed) == {1, 2, 3, 4}
    assert all(plain[step]["loss"] == probed[step]["loss"] for step in plain)


def test_its_numbers_are_those_of_evaluate_at_the_same_step_and_say_their_cost(runs):
    metrics = evaluate(
        runs / "probed", train="shapes:80@test", metrics=("knn", "linear"), snapshots=True, baselines=False
    )
    measured = {(m.metric, m.protocol["step"]): m.value for m in metrics if "step" in m.protocol}
    probed = {step: line for step, line in lines(runs / "probed").items() if "probe_knn" in line}
    assert set(probed) == {2, 4}
    for step, line in probed.items():
        assert line["probe_knn"] == measured["knn", step] and line["probe_linear"] == measured["linear", step]
        assert line["probe_seconds"] > 0


def test_of_many_images_a_stratified_draw_is_used(tmp_path, monkeypatch):
    monkeypatch.setattr(probing, "MOST", 20)
    seen = []
    monkeypatch.setattr(probing, "extract", lambda encoder, images, views, **_: seen.append(images) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        pretrain("shapes:40", out=tmp_path / "run", **SMALL | {"max_steps": 1}, **PROBE)
    (images,) = seen
    assert images.usable == 20
    assert images.labels[images.usable_ids()].bincount().tolist() == [2] * 10


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"probe_every": 2}, "probe_every is 2, but --probe-data is missing"),
        ({"probe_data": "shapes:40"}, "probe_data is 'shapes:40', but --probe-every is missing"),
        ({"probe_labels": "x.csv"}, "probe_labels is 'x.csv', but --probe-data is missing"),
        ({"probe_every": 0, "probe_data": "shapes:40"}, "probe_every is 0; allowed: a whole number, 1 or more"),
    ],
)
def test_half_of_a_probe_is_refused_before_any_work(given, sentence, tmp_path):
    with pytest.raises(ConfigError, match=f"^{sentence}"):
        pretrain("shapes:40", out=tmp_path / "run", **SMALL, **given)
    assert not (tmp_path / "run").exists()


def test_images_without_labels_are_refused(tmp_path):
    from PIL import Image

    (tmp_path / "flat").mkdir()
    for place in range(4):
        Image.new("RGB", (32, 32), (place * 60, 0, 0)).save(tmp_path / "flat" / f"{place}.png")
    with pytest.raises(DataError, match=r"^--probe-data has no labels; give sub-folders as classes"):
        pretrain("shapes:40", out=tmp_path / "run", **SMALL, probe_every=1, probe_data=tmp_path / "flat")
    assert not (tmp_path / "run").exists()


def test_a_resumed_run_goes_on_probing(tmp_path):
    assert pretrain("shapes:40", out=tmp_path / "run", **SMALL | {"max_steps": 2}, **PROBE)
    assert pretrain(out=tmp_path / "run", resume=True, max_steps=4)
    assert [step for step, line in lines(tmp_path / "run").items() if "probe_knn" in line] == [2, 4]
