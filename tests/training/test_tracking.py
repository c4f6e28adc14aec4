"""Trackers show what metrics.jsonl says, also after a resume; they neither stop a run nor change it. No network."""

from __future__ import annotations

import builtins
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent.parent / "reliability"))
from tiny import fingerprint, tiny_config, tiny_images, tiny_run

from echoless.errors import ConfigError, RunError
from echoless.runs import RunFolder
from echoless.training.tensorboard import Board
from echoless.training.tracking import Trackers, numbers
from echoless.verbs.pretrain import pretrain


@pytest.fixture(scope="module")
def images():
    return tiny_images()


def events(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard itself reads."""
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    read = accumulator.EventAccumulator(str(folder))
    read.Reload()
    return {tag: [(event.step, event.value) for event in read.Scalars(tag)] for tag in read.Tags()["scalars"]}


def test_tensorboard_reads_what_metrics_jsonl_says_after_a_resume_too(images, tmp_path):
    out, config = tmp_path / "run", tiny_config(images, steps=6, ema=None)
    tiny_run(out, images, replace(config, steps=4), track=("tensorboard",))
    tiny_run(out, images, config, track=("tensorboard",), resume=True)
    seen, lines = events(out / "tensorboard"), RunFolder(out).read_metrics()
    for name in ("loss", "lr", "gradient_norm"):
        assert [step for step, _ in seen[name]] == [1, 2, 3, 4, 5, 6]
        assert [value for _, value in seen[name]] == pytest.approx([line[name] for line in lines], rel=1e-6)
    assert {"rank_paper", "rankme", "images_per_second", "feature_norm/block00"} <= seen.keys()
    tiny_run(out, images, config, overwrite=True)
    assert not (out / "tensorboard").exists()


def test_tensorboard_without_the_extra_is_refused_before_any_work(tmp_path, monkeypatch):
    original = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith(("torch.utils.tensorboard", "tensorboard")):
            raise RuntimeError("cannot load its native part")
        return original(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"needs the extra tracking .*\[tracking\].*cannot load its native part"):
        pretrain("shapes:8", out=tmp_path / "run", track="tensorboard")
    assert not (tmp_path / "run").exists()


def test_events_that_cannot_be_written_do_not_stop_the_run(images, tmp_path, monkeypatch, capsys):
    def full(self, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.utils.tensorboard.SummaryWriter.add_scalar", full)
    assert tiny_run(tmp_path / "run", images, tiny_config(images, steps=3, ema=None), track=("tensorboard",))
    said = capsys.readouterr().err
    assert said.count("tensorboard ends here, the run goes on: No space left on device") == 1


def test_a_folder_that_cannot_hold_events_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="file/tensorboard cannot be written"):
        Board(tmp_path / "file" / "tensorboard", after=0)


def test_nested_numbers_are_named_by_their_place():
    line = {"step": 3, "loss": 0.5, "feature_norm": {"block00": 1, "block01": 2}}
    assert dict(numbers(line)) == {"loss": 0.5, "feature_norm/block00": 1.0, "feature_norm/block01": 2.0}


@pytest.fixture
def offline(monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")


def history(run: Path) -> list[dict]:
    """What wandb's own reader finds in the files of its offline runs, oldest first."""
    from wandb.proto import wandb_internal_pb2
    from wandb.sdk.internal.datastore import DataStore

    found = []
    for file in sorted(run.glob("wandb/offline-run-*/run-*.wandb")):
        store = DataStore()
        store.open_for_scan(str(file))
        while (data := store.scan_data()) is not None:
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.WhichOneof("record_type") == "history":
                found.append(_items(record.history.item))
        store.close()
    return found


def _items(items) -> dict:
    return {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def test_wandb_reads_what_metrics_jsonl_says_after_a_resume_too(images, tmp_path, offline):
    out, config = tmp_path / "run", tiny_config(images, steps=6, ema=None)
    tiny_run(out, images, replace(config, steps=4), track=("wandb",))
    identity = (out / "wandb" / "id.txt").read_text()
    tiny_run(out, images, config, track=("wandb",), resume=True)
    lines, seen = RunFolder(out).read_metrics(), history(out)
    assert [int(line["step"]) for line in seen] == [1, 2, 3, 4, 5, 6]
    assert [float(line["loss"]) for line in seen] == pytest.approx([line["loss"] for line in lines])
    assert "feature_norm/block00" in seen[0]
    folders = [folder.name for folder in (out / "wandb").glob("offline-run-*")]
    assert len(folders) == 2 and all(identity in name for name in folders), "one run, in two sessions"
    tiny_run(out, images, config, overwrite=True)
    assert not (out / "wandb").exists()


def test_trackers_change_nothing_that_a_run_computes(images, tmp_path, offline):
    config = tiny_config(images, steps=4, ema=None)
    tiny_run(tmp_path / "plain", images, config)
    tiny_run(tmp_path / "tracked", images, config, track=("tensorboard", "wandb"))
    assert fingerprint(tmp_path / "plain", 4) == fingerprint(tmp_path / "tracked", 4)


def test_a_wandb_that_cannot_start_is_one_sentence(tmp_path, offline, monkeypatch):
    def refuse(**_):
        raise RuntimeError("api_key not configured (no-tty)")

    monkeypatch.setattr("wandb.init", refuse)
    with pytest.raises(RunError, match=r"wandb cannot start: api_key not configured .*; WANDB_MODE=offline needs no"):
        Trackers(["wandb"], tmp_path, after=0, config={})


WITHOUT_A_LOGIN = """
import os
import echoless
from echoless.errors import ConfigError
common = {"recipe": "demo", "max_steps": 1, "track": ("wandb",), "overwrite": True}
try:
    echoless.pretrain("shapes:16", out="run", **common)
except ConfigError as error:
    print(error)
os.environ["WANDB_MODE"] = "offline"  # as in a notebook
echoless.pretrain("shapes:16", out="other", **common)
"""


def test_a_wandb_without_a_login_is_refused_before_an_old_run_is_replaced(tmp_path):
    """In a process of its own: wandb keeps its settings for as long as one lives."""
    pytest.importorskip("wandb")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "config.json").write_text("{}")
    unknown = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    environ = unknown | {"HOME": str(tmp_path), "ECHOLESS_CACHE": str(tmp_path), "WANDB_ERROR_REPORTING": "false"}
    command = [sys.executable, "-c", WITHOUT_A_LOGIN]
    done = subprocess.run(
        command, cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True
    )
    sentence = "track is 'wandb', which needs `wandb login` once; WANDB_MODE=offline needs no network"
    assert sentence in done.stdout.splitlines()
    assert (tmp_path / "run" / "config.json").read_text() == "{}"
    assert list((tmp_path / "other" / "wandb").glob("offline-run-*"))


def test_one_tracker_that_fails_leaves_the_other(tmp_path):
    class Broken:
        def record(self, step, values):
            raise ConnectionError("no route")

    seen = []

    class Working:
        def record(self, step, values):
            seen.append((step, values))

    trackers = Trackers([], tmp_path, after=0, config={})
    trackers._open = {"one": Broken(), "two": Working()}
    assert trackers.record({"step": 1, "loss": 0.5, "memory_mb": None}) == ["one ends here, the run goes on: no route"]
    assert trackers.record({"step": 2, "loss": 0.4}) == []
    assert seen == [(1, {"loss": 0.5}), (2, {"loss": 0.4})]
