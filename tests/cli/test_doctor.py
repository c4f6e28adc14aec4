"""`echoless doctor` tells the truth about this machine in plain words, broken optional libraries included, and its exit
code is 0 unless something that pretraining needs is broken."""

from __future__ import annotations

import signal
import tomllib
from pathlib import Path

import numpy as np
import pytest
import torch

from echoless.config.extras import install_command
from echoless.verbs import doctor


@pytest.fixture
def few(monkeypatch):
    """Only quick libraries, so that most tests are quick."""
    monkeypatch.setattr(doctor, "NEEDED", {"numpy": "1.20", "torch": "2.10"})
    monkeypatch.setattr(doctor, "EXTRAS", {"none": (("no-such-thing",), "nothing")})


def install_broken(folder: Path, name: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A library that is there and raises something else than ImportError."""
    (folder / name).mkdir()
    (folder / name / "__init__.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    (folder / f"{name}-{version}.dist-info").mkdir()
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    )
    monkeypatch.syspath_prepend(folder)


def test_a_healthy_machine_is_described_and_tested(typed, few):
    done = typed("doctor")
    assert done.code == 0, done.printed
    assert torch.__version__ in done.printed and np.__version__ in done.printed
    for topic in ("python", "processor", "GPU", "torch.compile", "memory", "disk", "cache"):
        assert f"\n  {topic} " in done.printed
    assert "images/s" in done.printed and "bitwise equal to an uninterrupted run" in done.printed
    assert "Everything that pretraining needs works here." in done.printed
    assert done.said == ""


def test_a_machine_too_slow_for_the_self_test_ends_it_early_and_well(typed, few, monkeypatch):
    monkeypatch.setattr(doctor, "SECONDS", 0.01)
    monkeypatch.setattr(doctor, "MOST_STEPS", 100_000)
    before = signal.getsignal(signal.SIGTERM)
    done = typed("doctor")
    assert done.code == 0 and "bitwise equal to an uninterrupted run" in done.printed
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_missing_extra_says_what_it_would_add(typed, few):
    done = typed("doctor", "--no-self-test")
    assert done.code == 0
    assert f"not installed; {install_command('none')} adds nothing" in done.printed
    assert "self-test" not in done.printed


def test_a_broken_extra_is_shown_as_broken(typed, few, tmp_path, monkeypatch):
    install_broken(tmp_path, "shatteredvision", "1.0", monkeypatch)
    monkeypatch.setattr(doctor, "EXTRAS", {"vision": (("shatteredvision", "numpy"), "eyes")})
    done = typed("doctor", "--no-self-test")
    assert done.code == 0
    assert f"numpy {np.__version__}; shatteredvision 1.0 is installed but broken: operator torchvision" in done.printed


def test_a_broken_or_old_need_is_exit_code_1(typed, few, tmp_path, monkeypatch):
    install_broken(tmp_path, "shatteredneed", "2.0", monkeypatch)
    monkeypatch.setattr(doctor, "NEEDED", {"numpy": "99", "shatteredneed": "", "absent-need": ""})
    done = typed("doctor")
    assert done.code == 1
    assert f"{np.__version__} is installed, 99 or newer is needed" in done.printed
    assert "2.0 is installed but broken" in done.printed and "absent-need        not installed" in done.printed
    assert "broken: numpy, shatteredneed, absent-need" in done.printed


def test_a_self_test_that_fails_is_exit_code_1(typed, few, monkeypatch):
    def fail(*_, **__):
        raise OSError("no space left on device")

    monkeypatch.setattr(doctor, "_pretrain", fail)
    done = typed("doctor")
    assert done.code == 1 and "training           failed: no space left on device" in done.printed


def test_the_tables_agree_with_pyproject():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]
    needed = {line.partition(">=")[0]: line.partition(">=")[2] for line in project["dependencies"]}
    assert needed == doctor.NEEDED
    assert {extra: list(names) for extra, (names, _) in doctor.EXTRAS.items()} == project["optional-dependencies"]


@pytest.mark.parametrize(("older", "newer"), [("2.9.1", "2.10"), ("0.8rc1", "0.8.1"), ("2.13.0+cpu", "2.13.1")])
def test_versions_compare_by_number(older, newer):
    assert doctor._numbers(older) < doctor._numbers(newer)
