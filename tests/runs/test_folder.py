"""Proves who may open a run folder, what --resume and --overwrite do to it, and that it holds what the design says."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from echoless.errors import Busy, RunError
from echoless.runs import RunFolder, load_weights, open_run
from echoless.runtime import StopRequest
from echoless.training.launch import _open_when_free

SHORTCUTS = {"variant": "faded", "alphas": [1.0, 0.6]}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def a_run(path: Path) -> None:
    with open_run(path) as run:
        run.write_config({"seed": 0})
        run.log("step 1")
        for step in (1, 2, 3):
            run.append_metrics({"step": step, "loss": 1.0})
            run.save_checkpoint(step, {"model": {"w": torch.ones(2)}}, {}, {"alphas": [1.0, 0.6]})
            run.save_snapshot(step, {"w": torch.ones(2)}, {}, SHORTCUTS)
        run.save_encoder({"w": torch.ones(2)}, {}, SHORTCUTS)
        run.add_results([{"metric": "knn", "value": 0.4, "n": 10, "protocol": {"k": 5}}])


def test_a_folder_in_use_is_refused_or_waited_for(tmp_path):
    """`--wait`: opened as soon as the other process lets go of it; a signal ends the wait."""
    other = open_run(tmp_path / "run")
    with pytest.raises(Busy, match="is being trained by another process"):
        _open_when_free(tmp_path / "run", True, False, None)
    stopped = StopRequest()
    stopped.requested = "SIGTERM"
    with pytest.raises(Busy):
        _open_when_free(tmp_path / "run", True, False, stopped)
    threading.Timer(0.2, other.close).start()
    _open_when_free(tmp_path / "run", True, False, StopRequest()).close()


def test_a_run_folder_is_complete_and_reads_back(tmp_path):
    a_run(tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    assert run.read_config() == {"seed": 0}
    assert [record["step"] for record in run.read_metrics()] == [1, 2, 3]
    assert (run.path / "log.txt").read_text() == "step 1\n"
    assert run.find_latest_valid().step == 3
    assert torch.equal(load_weights(run.encoder).tensors["w"], torch.ones(2))
    assert [folder.name for folder in run.snapshot_folders()] == [f"step-{step:08d}" for step in (1, 2, 3)]
    assert load_weights(run.snapshot_folders()[0]).shortcuts == SHORTCUTS
    assert run.read_results()[0]["value"] == 0.4
    visible = [name for name in names(run.path) if not name.startswith(".")]
    assert visible == [
        "checkpoints", "config.json", "encoder", "log.txt", "metrics.jsonl", "results.json", "snapshots",
    ]  # fmt: skip


def test_a_folder_that_holds_something_is_refused_with_the_ways_out(tmp_path):
    a_run(tmp_path / "run")
    with pytest.raises(RunError, match=r"run is not empty \(it holds .*give --resume .*--overwrite .*another --out"):
        open_run(tmp_path / "run")


def test_resume_keeps_everything_and_goes_on(tmp_path):
    a_run(tmp_path / "run")
    with open_run(tmp_path / "run", resume=True) as run:
        assert run.find_latest_valid().step == 3
        run.truncate_metrics(2)
        run.drop_snapshots_after(2)
        assert [record["step"] for record in run.read_metrics()] == [1, 2]
        assert len(run.snapshot_folders()) == 2


def test_resume_of_nothing_starts_at_nothing(tmp_path):
    for _ in range(2):
        with open_run(tmp_path / "run", resume=True) as run:
            assert run.find_latest_valid() is None


def test_a_run_killed_before_its_first_step_can_simply_be_started_again(tmp_path):
    open_run(tmp_path / "run").close()
    (tmp_path / "run" / "config.json.tmp-4194305").touch()
    with open_run(tmp_path / "run"):
        assert names(tmp_path / "run") == [".lock", "checkpoints"]


def test_overwrite_replaces_a_run(tmp_path):
    a_run(tmp_path / "run")
    with open_run(tmp_path / "run", overwrite=True) as run:
        assert names(run.path) == [".lock", "checkpoints"]
        assert run.find_latest_valid() is None


@pytest.mark.parametrize("kind", ["photos", "other model", "run with notes", "only a log"])
def test_overwrite_deletes_nothing_but_a_run(tmp_path, kind):
    folder = tmp_path / "out"
    files = {
        "photos": ["a.jpg", "b.jpg"],
        "other model": ["config.json", "pytorch_model.bin"],
        "run with notes": ["config.json", "metrics.jsonl", "notes.txt"],
        "only a log": ["log.txt"],
    }[kind]
    folder.mkdir()
    for name in files:
        (folder / name).write_text("precious")
    with pytest.raises(RunError, match="out is not overwritten: it"):
        open_run(folder, overwrite=True)
    assert names(folder) == sorted(files)


def test_overwrite_does_not_follow_a_link_out_of_the_run(tmp_path):
    a_run(tmp_path / "run")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    (tmp_path / "run" / "report.html").symlink_to(tmp_path / "outside")
    open_run(tmp_path / "run", overwrite=True).close()
    assert (tmp_path / "outside" / "precious").exists() and not (tmp_path / "run" / "report.html").exists()


def test_a_folder_of_something_else_cannot_be_resumed_and_gets_no_file_from_us(tmp_path):
    (tmp_path / "photo.jpg").touch()
    for choice in ({"resume": True}, {"overwrite": True}, {}):
        with pytest.raises(RunError):
            open_run(tmp_path, **choice)
    assert names(tmp_path) == ["photo.jpg"]


def test_two_processes_cannot_train_into_one_run(tmp_path):
    with open_run(tmp_path / "run"):
        with pytest.raises(RunError, match="is being trained by another process"):
            open_run(tmp_path / "run", resume=True)
        assert RunFolder(tmp_path / "run").read_results() == []
    open_run(tmp_path / "run", resume=True).close()


def test_contradictions_and_files_in_the_place_of_a_folder_are_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="file is not a folder"):
        open_run(tmp_path / "file")
    with pytest.raises(RunError, match="both resumed and overwritten"):
        open_run(tmp_path / "run", resume=True, overwrite=True)
    with pytest.raises(RunError, match=r"config\.json cannot be read: No such file"):
        RunFolder(tmp_path / "nowhere").read_config()
