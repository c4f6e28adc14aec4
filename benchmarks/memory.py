"""How much memory does a process need for a step of a MAE-base? Alone, with DDP, with --shard, and with recomputation.

    python benchmarks/memory.py [--recipe mae-base] [--per-process 16] [--steps 2]

Every process has the same number of images, whether it is alone or one of two, so that only the way the model is held
differs. Bytes are those of the kernel: anonymous memory beyond what the process had with all libraries loaded, and its
peak (VmHWM) during the step. Every large tensor is mapped on its own, so that freed ones are returned at once.

    held         weights and optimiser state, before a step
    activations  what the forward pass leaves for the backward pass
    peak         the most during a step
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

SIDES = {
    "one process": (1, {}),
    "two, DDP": (2, {}),
    "two, --shard": (2, {"shard": True}),
    "two, --shard --checkpoint-activations": (2, {"shard": True, "recompute": True}),
    "one, --checkpoint-activations": (1, {"recompute": True}),
}
GOALS = {"held": ("two, --shard", 0.6), "activations": ("two, --shard --checkpoint-activations", 0.4)}


def work(recipe: str, per_process: int, steps: int, how: dict[str, bool]) -> None:
    """What a process does: steps on noise; the largest figures of all but the first as one line of JSON."""
    import torch

    from echoless.config.facts import DataFacts
    from echoless.data import Batch
    from echoless.randomness import generator_for
    from echoless.recipes.table import RECIPES
    from echoless.runtime import join_team, leave_team
    from echoless.training import build_task, make_trainee, take_step

    torch.set_num_threads(1)
    team = join_team("cpu")
    small = RECIPES["demo"](DataFacts(channels=3, height=32, width=32, count=1000))
    _steps(take_step, make_trainee(_plain(small, 2 * team.world), *_task(small, build_task), team, **how), Batch, 1)
    start = resident()
    config = RECIPES[recipe](DataFacts(channels=3, height=224, width=224, count=1_281_167, accelerated=True))
    config = _plain(config, per_process * team.world)
    trainee = make_trainee(config, *build_task(config, generator_for(0, "init", 0)), team, **how)
    found = {name: value - start for name, value in _steps(take_step, trainee, Batch, steps).items()}
    found["activations"] += start  # a difference already
    print(json.dumps(found), flush=True)
    team.wait()
    leave_team()


def _task(config, build_task):
    from echoless.randomness import generator_for

    return build_task(config, generator_for(0, "init", 0))


def _plain(config, batch_size: int):
    from dataclasses import replace

    optim = replace(config.optim, name="adamw", ema=None)
    return replace(config, optim=optim, batch_size=batch_size, compile=False, precision="fp32", accumulate=1)


def _steps(take_step, trainee, make_batch, steps: int) -> dict[str, int]:
    """Bytes held before the last step, left by its forward pass, and at its peak; the first step makes the state."""
    import torch

    world, rank = trainee.team.world, trainee.team.rank
    each = trainee.config.batch_size // world
    images = torch.randn(each, 3, *trainee.config.model.image_size, generator=torch.Generator().manual_seed(rank))
    places = torch.arange(each) + rank * each
    seen: dict[str, int] = {}
    trainee.runner.register_forward_pre_hook(lambda *_: seen.__setitem__("before", resident()), prepend=True)
    trainee.runner.register_forward_hook(lambda *_: seen.__setitem__("after", resident()))
    for step in range(steps + 1):
        batch = make_batch(step=step, images_BCHW=images, ids_B=places, places_B=places, labels_B=None, waited=0.0)
        Path("/proc/self/clear_refs").write_text("5")  # the peak so far is forgotten
        take_step(trainee, batch)
        peak = _status("VmHWM") - _status("RssFile") - _status("RssShmem")
    return {"held": seen["before"], "activations": seen["after"] - seen["before"], "peak": peak}


def resident() -> int:
    """Bytes of anonymous memory."""
    return _status("RssAnon")


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line for line in lines if line.startswith(field)).split()[1])


def measure(options: argparse.Namespace, world: int, how: dict[str, bool]) -> dict[str, int]:
    """The figures of the process that needs most."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    common = os.environ | {"OMP_NUM_THREADS": "1", "MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "65536"}
    common |= {"MALLOC_ARENA_MAX": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(world)}
    command = [sys.executable, __file__, "--work", json.dumps(how), "--recipe", options.recipe]
    command += ["--per-process", str(options.per_process), "--steps", str(options.steps)]
    processes = [
        subprocess.Popen(command, env=common | {"RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE)
        for rank in range(world)
    ]
    outputs = [process.communicate()[0] for process in processes]
    if any(process.returncode for process in processes):
        sys.exit("a process failed; its message is above")
    found = [json.loads(output.splitlines()[-1]) for output in outputs]
    return {name: max(each[name] for each in found) for name in found[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--recipe", default="mae-base")
    parser.add_argument("--per-process", type=int, default=16)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work is not None:
        work(options.recipe, options.per_process, options.steps, json.loads(options.work))
        return
    from interleave import write

    record: dict[str, dict[str, float]] = {}
    for name, (world, how) in SIDES.items():
        found = measure(options, world, how)
        alone = record.get("one process", found)
        record[name] = {**found, **{f"{key}_ratio": found[key] / alone[key] for key in found}}
        shown = ", ".join(f"{key} {found[key] / 2**20:7,.0f} MB ({found[key] / alone[key]:.2f})" for key in found)
        print(f"{name:38} {shown}", flush=True)
    for key, (side, goal) in GOALS.items():
        reached = record[side][f"{key}_ratio"]
        verdict = "reached" if reached < goal else "NOT reached"
        print(f"goal: {key} of {side} below {goal} of one process: {reached:.2f}, {verdict}")
    print(f"written: {write('memory', record).name}")


if __name__ == "__main__":
    main()
