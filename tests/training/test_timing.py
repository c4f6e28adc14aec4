"""The measured speed is that of a long run: steps that are rare and slow count as often as they come."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from echoless.config import DataConfig
from echoless.config.facts import DataFacts
from echoless.config.options import PretrainOptions
from echoless.data import open_images
from echoless.recipes.resolve import resolve
from echoless.runtime import Team
from echoless.training import timing


def test_a_step_takes_the_mean_of_those_that_were_timed():
    """Where one of ten is another, it counts as one of ten, however few were timed."""
    assert timing._seconds_in_the_long_run([1.0, 2.0, 6.0], 1) == 3.0
    assert timing._seconds_in_the_long_run([32.0, 2.0, 4.0], 10) == pytest.approx((32 + 9 * 3) / 10)


@pytest.mark.parametrize(("optimizer", "seconds"), [("soap", (92 + 9 * 1) / 10), ("adamw", 1)])
@pytest.mark.parametrize("limit", [0, 1000], ids=["stopped at once", "all steps"])
def test_the_renewal_of_bases_counts_as_one_step_in_ten(optimizer, seconds, limit, monkeypatch):
    """At patch 32 it takes as long as thirty steps. A short measurement saw none: it promised 508 images/s of 199."""
    clock, take = [0.0], timing.take_step

    def step(trainee, batch):
        take(trainee, batch)
        (group, *_) = trainee.optimizer.param_groups
        done = group.get("step", 0) - 1
        clock[0] += 92 if done > 0 and done % group["precondition_frequency"] == 0 else 1

    monkeypatch.setattr(timing, "time", SimpleNamespace(perf_counter=lambda: clock[0], thread_time=lambda: clock[0]))
    monkeypatch.setattr(timing, "take_step", step)
    tiny = {"image_size": (16,), "patch_size": 8, "width": 32, "depth": 2, "batch_size": 4, "max_steps": 50}
    wanted = PretrainOptions("DATA", out="OUT", recipe="shapes", optimizer=optimizer, **tiny)
    config = resolve(wanted, DataFacts(3, 32, 32, 16), DataConfig(mean=(0.5,) * 3, std=(0.25,) * 3))
    alone = Team(0, 1, torch.device("cpu"))
    speed = timing.measure_speed(config, open_images("shapes:16"), alone, 0, limit=limit, check=lambda: None)
    assert speed.images_per_second == pytest.approx(4 / seconds)
