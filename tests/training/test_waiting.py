"""A step waits for the device once: a GPU that is asked for a number at every turn stands still in between."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import torch
from torch.utils._python_dispatch import TorchDispatchMode

sys.path.insert(0, str(Path(__file__).parents[1] / "reliability"))
from tiny import tiny_config, tiny_images

from echoless.data import Loader
from echoless.randomness import generator_for
from echoless.runtime import Team
from echoless.training import build_task, make_trainee
from echoless.training.step import take_step

ASKED = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal")  # a number, a truth value, a shape that depends on it


class Questions(TorchDispatchMode):
    """Counts what would make the host wait for a tensor on a device."""

    def __init__(self) -> None:
        super().__init__()
        self.found: Counter[str] = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        if name in ASKED:
            self.found[name] += 1
        return function(*args, **(kwargs or {}))


def _step(monkeypatch):
    """Three steps of a masked autoencoder: the questions, and the numbers that came to the host, of the last."""
    images = tiny_images()
    config = tiny_config(images, ema=None)
    model, objective = build_task(config, generator_for(0, "init", 0))
    trainee = make_trainee(config, model, objective, Team(0, 1, torch.device("cpu")))
    loader = Loader(images, size=(32, 32), batch_size=8, seed=0, mean=config.data.mean, std=config.data.std)
    lists: list[torch.Tensor] = []
    to_list = torch.Tensor.tolist
    for step in range(3):
        batch = loader.batch(step)
        lists.clear()
        with monkeypatch.context() as patched, Questions() as questions:
            patched.setattr(torch.Tensor, "tolist", lambda tensor: lists.append(tensor) or to_list(tensor))
            report = take_step(trainee, batch)
    return questions.found, lists, report


def test_loss_and_gradient_norm_come_to_the_host_together_and_nothing_else_does(monkeypatch):
    asked, lists, report = _step(monkeypatch)
    assert not asked
    (together,) = lists
    assert together.tolist() == [report.loss, report.gradient_norm]


def test_a_gpu_copies_from_pinned_memory(monkeypatch):
    """There is no GPU here; shown is that the threads pin images and labels, and only when they are asked to."""
    pinned: list[torch.Tensor] = []
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor: pinned.append(tensor) or tensor)
    images = tiny_images()
    loader = Loader(images, size=(32, 32), batch_size=8, seed=0, mean=(0.5,) * 3, std=(0.2,) * 3)
    list(loader.batches(0, 2))
    assert not pinned
    batches = list(loader.batches(0, 2, pin=True))
    assert {id(tensor) for tensor in pinned} == {id(each) for b in batches for each in (b.images_BCHW, b.labels_B)}
