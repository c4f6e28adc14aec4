"""How fast would a config train on this machine? A few real steps of it, on the images, which are then forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

import torch

from echoless.config import RunConfig
from echoless.data import Images
from echoless.randomness import generator_for
from echoless.runtime import Team
from echoless.training.batches import make_loader
from echoless.training.step import make_trainee, take_step
from echoless.training.task import build_task

TIMED_STEPS = 10


class Speed(NamedTuple):
    """How fast a config trains, and the share of its core that this process was given while it was measured."""

    images_per_second: float  # of all processes
    share: float = 1.0  # about 1 on an idle machine; with a GPU, where the processor only waits, always 1


def measure_speed(
    config: RunConfig, images: Images, team: Team, workers: int, *, limit: float, check: Callable[[], None]
) -> Speed:
    """Rank 0 measures alone, and the others take its word times their number.

    The first step is not counted: it makes what the others use. After `limit` seconds no third or later step is timed.
    `check` is called between steps and may raise.
    """
    speed = Speed(0.0, 0.0)
    with team.together():
        if team.leads:
            speed = _alone(config, images, replace(team, rank=0, world=1), workers, limit, check)
    alone, share = team.maximum(*speed)
    return Speed(team.world * alone, share)


def _alone(
    config: RunConfig, images: Images, team: Team, workers: int, limit: float, check: Callable[[], None]
) -> Speed:
    trainee = make_trainee(config, *build_task(config, generator_for(config.seed, "init", 0)), team)
    loader = make_loader(config, images, team, workers)
    batches = loader.batches(0, TIMED_STEPS + 1, pin=team.device.type == "cuda")
    period = _renew_in_second_step(trainee.optimizer)
    ends, images_seen, computing, used = [0.0], 0, 0.0, 0.0
    try:
        for batch in batches:
            check()
            begun, processor = time.perf_counter(), time.thread_time()
            take_step(trainee, batch)
            now = time.perf_counter()
            if batch.step == 0:
                ends = [now]
                continue
            ends.append(now)
            images_seen += len(batch.ids_B)
            computing, used = computing + now - begun, used + time.thread_time() - processor
            if now - ends[0] > limit and len(ends) > 2:
                break
    finally:
        batches.close()  # type: ignore[attr-defined]
    share = min(1.0, used / computing) if team.device.type == "cpu" else 1.0
    steps = [after - before for before, after in pairwise(ends)]
    return Speed(images_seen / len(steps) / _seconds_in_the_long_run(steps, period), share)


def _seconds_in_the_long_run(steps: Sequence[float], period: int) -> float:
    """Of a step, where the first of these stands for one in `period` and the others for the rest."""
    first, *others = steps
    if period == 1 or not others:
        return fmean(steps)
    return (first + (period - 1) * fmean(others)) / period


def _renew_in_second_step(optimizer: torch.optim.Optimizer) -> int:
    """SOAP renews its bases in one step of ten, which may cost more than the other nine. Makes the first step that is
    timed such a step, and says how many of them there are to one.
    """
    period = 1
    for group in optimizer.param_groups:
        period = group.get("precondition_frequency", 1)
        if period > 1:
            group["step"] = period - 1
    return period
