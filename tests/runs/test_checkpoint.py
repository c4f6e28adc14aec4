"""Proves what a checkpoint holds, in which order it reaches the disk, which one is found, and which ones are kept."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from echoless.errors import RunError, UntrustedFile
from echoless.runs import find_latest_valid, load_checkpoint, save_checkpoint, verify_checkpoint
from echoless.runs.checkpoint import _sealed

MANIFEST = {"alphas": [1.0, 0.8, 0.6], "config": {"lr": 1e-3}, "torch": torch.__version__, "threads": 1}


def save(folder: Path, step: int, keep: int = 2) -> Path:
    generator = torch.Generator().manual_seed(step)
    shared = torch.randn(4, 4, generator=generator)
    model = {"weight": shared, "tied": shared, "turned": torch.randn(3, 5, generator=generator).T}
    tensors = {"model": model, "optim": {"m": torch.full((4,), float(step))}, "ema": {}}
    return save_checkpoint(folder, step, tensors, {"step": step, "loss": 0.1}, MANIFEST, keep)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_checkpoint_comes_back_exactly(tmp_path):
    path = save(tmp_path, 123)
    assert path == tmp_path / "step-00000123"
    found = load_checkpoint(path)
    assert (found.step, found.state) == (123, {"step": 123, "loss": 0.1})
    assert found.manifest.items() >= MANIFEST.items()
    generator = torch.Generator().manual_seed(123)
    weight = torch.randn(4, 4, generator=generator)
    assert torch.equal(found.tensors["model"]["weight"], weight)
    assert torch.equal(found.tensors["model"]["tied"], weight)
    assert torch.equal(found.tensors["model"]["turned"], torch.randn(3, 5, generator=generator).T)
    assert torch.equal(found.tensors["optim"]["m"], torch.full((4,), 123.0))
    assert found.tensors["ema"] == {}


def test_its_files_need_none_of_our_code(tmp_path):
    path = save(tmp_path, 1)
    assert names(path) == ["MANIFEST.json", "ema.safetensors", "model.safetensors", "optim.safetensors", "state.json"]
    assert torch.equal(load_file(path / "optim.safetensors")["m"], torch.ones(4))
    manifest = json.loads((path / "MANIFEST.json").read_text())
    assert manifest["alphas"] == [1.0, 0.8, 0.6] and manifest["step"] == 1
    assert manifest["files"]["state.json"]["bytes"] == (path / "state.json").stat().st_size
    assert (tmp_path / "latest").read_text() == "step-00000001\n"


def test_equal_runs_write_equal_bytes(tmp_path):
    for run in ("a", "b"):
        (tmp_path / run).mkdir()
        save(tmp_path / run, 7)
    for name in names(tmp_path / "a" / "step-00000007"):
        first, second = (tmp_path / run / "step-00000007" / name for run in ("a", "b"))
        assert first.read_bytes() == second.read_bytes()


def test_every_file_is_on_the_disk_before_the_folder_and_latest_follows(tmp_path, monkeypatch):
    save(tmp_path, 1), save(tmp_path, 2)
    seen: list[str] = []
    fsync, rename, replace, rmdir = os.fsync, os.rename, os.replace, os.rmdir

    def recorded_fsync(descriptor: int) -> None:
        seen.append("fsync " + Path(f"/proc/self/fd/{descriptor}").readlink().name.split(".tmp-")[0])
        fsync(descriptor)

    def recorded(name: str, real):
        def call(source, *others, **keywords):
            seen.append(f"{name} {Path(source).name.split('.tmp-')[0]}")
            return real(source, *others, **keywords)

        return call

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(os, "rename", recorded("rename", rename))
    monkeypatch.setattr(os, "replace", recorded("replace", replace))
    monkeypatch.setattr(os, "rmdir", recorded("rmdir", rmdir))
    save(tmp_path, 3)
    assert seen == [
        "fsync model.safetensors",
        "fsync optim.safetensors",
        "fsync ema.safetensors",
        "fsync state.json",
        "fsync MANIFEST.json",
        "fsync step-00000003",
        "rename step-00000003",
        f"fsync {tmp_path.name}",
        "fsync latest",
        "replace latest",
        f"fsync {tmp_path.name}",
        "rename step-00000001",
        "rmdir step-00000001",
    ]


def test_the_newest_valid_one_is_found_and_the_skipped_ones_are_explained(tmp_path):
    assert find_latest_valid(tmp_path) is None and find_latest_valid(tmp_path / "missing") is None
    for step in (1, 2, 3):
        save(tmp_path, step, keep=3)
    assert find_latest_valid(tmp_path).step == 3 and find_latest_valid(tmp_path).skipped == ()
    (tmp_path / "step-00000003" / "state.json").write_text("{}")
    (tmp_path / "step-00000002" / "MANIFEST.json").unlink()
    found = find_latest_valid(tmp_path)
    assert (found.step, found.path.name) == (1, "step-00000001")
    assert [name for name, _ in found.skipped] == ["step-00000003", "step-00000002"]
    assert "state.json is damaged" in found.skipped[0].reason
    assert "MANIFEST.json cannot be read: No such file" in found.skipped[1].reason


def test_when_none_is_valid_the_user_decides(tmp_path):
    save(tmp_path, 1)
    (tmp_path / "step-00000001" / "model.safetensors").unlink()
    with pytest.raises(RunError, match=r"no checkpoint in .* is valid: .*model\.safetensors cannot be read"):
        find_latest_valid(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"../../etc", b"step-1"])
def test_a_damaged_latest_is_reported_and_changes_nothing(tmp_path, content):
    save(tmp_path, 1)
    (tmp_path / "latest").write_bytes(content)
    found = find_latest_valid(tmp_path)
    assert found.step == 1 and found.skipped[0].name == "latest"


def test_a_checkpoint_that_somebody_removed_is_reported(tmp_path):
    save(tmp_path, 1), save(tmp_path, 2)
    shutil.rmtree(tmp_path / "step-00000002")
    found = find_latest_valid(tmp_path)
    assert found.step == 1 and "step-00000002 does not exist, although latest names it" in found.skipped[0].reason


def test_a_renamed_checkpoint_does_not_pass_for_another_step(tmp_path):
    save(tmp_path, 1).rename(tmp_path / "step-00000009")
    with pytest.raises(RunError, match="holds the checkpoint of another step: 1"):
        verify_checkpoint(tmp_path / "step-00000009")


@pytest.mark.parametrize("keep", [2, 3])
def test_the_newest_ones_are_kept(tmp_path, keep):
    for step in range(1, 7):
        save(tmp_path, step, keep)
    assert names(tmp_path) == ["latest", *(f"step-{step:08d}" for step in range(7 - keep, 7))]


def test_a_damaged_checkpoint_does_not_count_as_kept(tmp_path):
    save(tmp_path, 1), save(tmp_path, 2)
    (tmp_path / "step-00000002" / "state.json").write_text("{}")
    save(tmp_path, 3)
    assert names(tmp_path) == ["latest", "step-00000001", "step-00000002", "step-00000003"]
    save(tmp_path, 4)
    assert names(tmp_path) == ["latest", "step-00000003", "step-00000004"]


def test_a_delete_that_fails_is_said_and_does_not_stop_the_run(tmp_path, monkeypatch, caplog):
    save(tmp_path, 1), save(tmp_path, 2)

    real = os.unlink

    def unlink(path, *, dir_fd: int | None = None) -> None:
        if dir_fd is not None:  # inside a folder that is being deleted
            raise PermissionError(errno.EACCES, "Permission denied")
        real(path)

    with caplog.at_level(logging.WARNING), monkeypatch.context() as patch:
        patch.setattr(os, "unlink", unlink)
        path = save(tmp_path, 3)
    assert find_latest_valid(tmp_path).path == path
    assert "an old checkpoint stays on the disk" in caplog.text and "step-00000001" in caplog.text
    save(tmp_path, 4)
    assert names(tmp_path) == ["latest", "step-00000003", "step-00000004"]


def test_saving_a_step_again_replaces_it(tmp_path):
    save(tmp_path, 1), save(tmp_path, 2)
    (tmp_path / "step-00000002" / "state.json").write_text("{}")
    save(tmp_path, 2)
    assert find_latest_valid(tmp_path).skipped == () and names(tmp_path) == ["latest", "step-00000001", "step-00000002"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"step": -1}, "step is -1; allowed: 0 to 99999999"),
        ({"step": 10**8}, "step is 100000000; allowed"),
        ({"keep": 1}, "keep is 1; allowed: 2 or more"),
        ({"tensors": {"../model": {}}}, r"the group '\.\./model'; allowed"),
        ({"manifest": {"files": {}}}, "the key 'files', which is added here"),
        ({"state": {"x": object()}}, r"state\.json cannot be written as JSON"),
        ({"manifest": {"x": float("nan")}}, r"MANIFEST\.json cannot be written as JSON"),
    ],
)
def test_bad_arguments_are_refused_and_leave_nothing(tmp_path, arguments, words):
    given = {"step": 1, "tensors": {"model": {"w": torch.ones(1)}}, "state": {}, "manifest": {}, **arguments}
    with pytest.raises(RunError, match=words):
        save_checkpoint(tmp_path, **given)
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    "name",
    ["../x.safetensors", "/x.safetensors", "a/b.safetensors", "model.pt", ".a.safetensors", "model.safetensors\n"],
)
def test_a_manifest_cannot_name_a_file_outside(tmp_path, name):
    path = save(tmp_path, 1)
    manifest = json.loads((path / "MANIFEST.json").read_text())
    del manifest["seal"]
    manifest["files"][name] = {"bytes": 1, "sha256": "0"}
    (path / "MANIFEST.json").write_bytes(_sealed(manifest, path))
    with pytest.raises(UntrustedFile, match=r"lists the file .*; allowed: state\.json, NAME\.safetensors"):
        load_checkpoint(path)


def test_nonsense_that_was_sealed_is_no_valid_checkpoint(tmp_path):
    """Right bytes are not enough: what is called valid must load."""
    path = save(tmp_path, 1)
    file = sorted(path.glob("*.safetensors"))[0]
    file.write_bytes(b"nonsense" * 10)
    manifest = json.loads((path / "MANIFEST.json").read_text())
    del manifest["seal"]
    manifest["files"][file.name] = {"bytes": 80, "sha256": hashlib.sha256(file.read_bytes()).hexdigest()}
    (path / "MANIFEST.json").write_bytes(_sealed(manifest, path))
    with pytest.raises(UntrustedFile, match=file.name):
        verify_checkpoint(path)
