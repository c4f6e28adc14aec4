"""How fast would a config train on this machine? A few real steps of it, on the images, which are then forgotten."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from echoless.config import RunConfig
from echoless.data import Images
from echoless.randomness import generator_for
from echoless.runtime import Team
from echoless.training.batches import make_loader
from echoless.training.step import make_trainee, take_step
from echoless.training.task import build_task

TIMED_STEPS = 10  # SOAP renews its bases in every tenth


def measure_speed(
    config: RunConfig, images: Images, team: Team, workers: int, *, limit: float, check: Callable[[], None]
) -> float:
    """Images per second of all processes: rank 0 measures alone, and the others take its word times their number.

    The first step is not counted: it makes what the others use. After `limit` seconds no further step is timed. `check`
    is called between steps and may raise.
    """
    speed = 0.0
    with team.together():
        if team.leads:
            speed = _alone(config, images, replace(team, rank=0, world=1), workers, limit, check)
    return team.world * team.maximum(speed)[0]


def _alone(
    config: RunConfig, images: Images, team: Team, workers: int, limit: float, check: Callable[[], None]
) -> float:
    trainee = make_trainee(config, *build_task(config, generator_for(config.seed, "init", 0)), team)
    batches = make_loader(config, images, team, workers).batches(0, TIMED_STEPS + 1)
    started, seen, seconds = 0.0, 0, 0.0
    try:
        for batch in batches:
            check()
            take_step(trainee, batch)
            if batch.step == 0:
                started = time.perf_counter()
                continue
            seen, seconds = seen + len(batch.ids_B), time.perf_counter() - started
            if seconds > limit:
                break
    finally:
        batches.close()  # type: ignore[attr-defined]
    return seen / seconds
