"""Which device is chosen: by name, or CUDA before the CPU. Only the choice is tested; no such hardware is needed."""

from __future__ import annotations

import pytest
import torch

from echoless.errors import ConfigError
from echoless.runtime import choose_device
from echoless.runtime.devices import KNOWN
from echoless.runtime.distributed import Team, join_team


@pytest.fixture
def has(monkeypatch):
    """A machine on which torch sees exactly these."""

    def only(*kinds: str) -> None:
        for kind in KNOWN[1:]:
            backend = torch.backends.mps if kind == "mps" else getattr(torch, kind)
            monkeypatch.setattr(backend, "is_available", lambda kind=kind: kind in kinds)

    return only


@pytest.mark.parametrize(
    ("there", "asked", "chosen"),
    [
        ((), "auto", "cpu"),
        ((), "cpu", "cpu"),
        (("cuda",), "auto", "cuda:1"),
        (("cuda",), "cuda", "cuda:1"),
        (("cuda",), "cuda:3", "cuda:3"),
        (("mps",), "auto", "cpu"),
        (("mps",), "mps", "mps"),
        (("xpu",), "auto", "cpu"),
        (("xpu",), "xpu", "xpu:1"),
        (("xpu",), "xpu:0", "xpu:0"),
        (("cuda", "xpu", "mps"), "auto", "cuda:1"),
    ],
)
def test_a_device_is_the_one_named_and_auto_takes_only_what_was_tested(there, asked, chosen, has):
    has(*there)
    assert str(choose_device(asked, local_rank=1)) == chosen


@pytest.mark.parametrize(("asked", "missing"), [("cuda", "no GPU"), ("xpu", "no Intel GPU"), ("mps", "no Apple GPU")])
def test_a_device_that_is_not_there_is_refused(asked, missing, has):
    has()
    with pytest.raises(ConfigError, match=f"device is '{asked}', but torch sees {missing} here; allowed: auto or cpu"):
        choose_device(asked)


@pytest.mark.parametrize("asked", ["gpu", "meta", "cuda:x"])
def test_a_name_that_is_no_device_is_refused(asked, has):
    has(*KNOWN)
    with pytest.raises(ConfigError, match=f"device is '{asked}'; allowed: auto, cpu, cuda, cuda:N, xpu or mps"):
        choose_device(asked)


def test_untested_devices_are_for_one_process(has, monkeypatch):
    has("mps")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match="device is 'mps', which one process can use, not 2"):
        join_team("mps")


@pytest.mark.parametrize(("device", "accelerated"), [("cpu", False), ("cuda", True), ("mps", True), ("xpu", True)])
def test_every_gpu_counts_as_one(device, accelerated):
    assert Team(0, 1, torch.device(device)).accelerated is accelerated
