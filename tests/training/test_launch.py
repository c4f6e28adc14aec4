"""A run of several nodes is refused before any work where they do not see the same run folder."""

from __future__ import annotations

import threading
import time

import pytest
import torch

from echoless.errors import RunError
from echoless.runtime import Team
from echoless.training import launch

SECOND = Team(1, 2, torch.device("cpu"))


def test_a_run_folder_that_another_node_does_not_see_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "_SHOWN_AFTER_SECONDS", 0.3)
    with pytest.raises(
        RunError, match=r"process 1 does not see .*run, .*; --out must be on a disk that all nodes share"
    ):
        launch._require_shared(tmp_path / "run", SECOND)


def test_a_network_disk_may_show_it_late(tmp_path):
    def later():
        time.sleep(0.3)
        (tmp_path / "run").mkdir()

    thread = threading.Thread(target=later)
    thread.start()
    launch._require_shared(tmp_path / "run", SECOND)
    thread.join()
    assert (tmp_path / "run").is_dir()
