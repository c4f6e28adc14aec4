"""A training step of the small recipes on one core: this tree against an earlier one.

    git worktree add /tmp/earlier COMMIT
    python benchmarks/small_step.py --earlier /tmp/earlier [--recipes demo cifar10] [--rounds 10] [--steps 10]

Each tree has its own process, with one thread. The two take turns: one waits while the other runs some steps, and the
order reverses every round. SOAP renews its bases in one of ten steps, so `--steps` should be a multiple of ten. Both
train on the same noise, with the optimiser and everything else as in `echoless pretrain`, and count wall time and CPU
time.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

BATCH = 128  # images, whatever the recipe of either tree has
BATCHES = 11  # before anything is measured: SOAP's first renewal of its bases is in the eleventh step


def work(recipe: str, steps: int) -> None:
    """What a process does: `steps` training steps for every line on stdin, and their seconds on stdout."""
    from dataclasses import replace

    import torch

    from echoless.config.facts import DataFacts
    from echoless.data import Batch
    from echoless.randomness import generator_for
    from echoless.recipes.table import RECIPES
    from echoless.runtime import Team
    from echoless.training import build_task, make_trainee, take_step

    torch.set_num_threads(1)
    config = replace(RECIPES[recipe](DataFacts(channels=3, height=32, width=32, count=50_000)), batch_size=BATCH)
    alone = Team(0, 1, torch.device("cpu"))
    trainee = make_trainee(config, *build_task(config, generator_for(0, "init", 0)), alone)
    images = torch.randn(config.batch_size, 3, 32, 32, generator=torch.Generator().manual_seed(2))
    places = torch.arange(config.batch_size)
    done = 0

    def some(count: int) -> None:
        nonlocal done
        for step in range(done, done + count):
            batch = Batch(step=step, images_BCHW=images, ids_B=places, places_B=places, labels_B=None, waited=0.0)
            take_step(trainee, batch)
        done += count

    with _memory_of_training():
        some(BATCHES)
        print("ready", flush=True)
        for _ in sys.stdin:
            wall, cpu = time.perf_counter(), time.process_time()
            some(steps)
            print((time.perf_counter() - wall) / steps, (time.process_time() - cpu) / steps, flush=True)


def _memory_of_training() -> contextlib.AbstractContextManager[object]:
    try:
        from echoless.runtime import reuse_freed_memory
    except ImportError:  # an earlier tree
        return contextlib.nullcontext()
    return reuse_freed_memory()


def start(tree: Path, recipe: str, steps: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", "--recipes", recipe, "--steps", str(steps)]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen[str]) -> tuple[float, float]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    wall, cpu = map(float, process.stdout.readline().split())
    return wall, cpu


def compare(recipe: str, trees: dict[str, Path], rounds: int, steps: int) -> dict[str, object]:
    from interleave import ratio

    processes = {name: start(tree, recipe, steps) for name, tree in trees.items()}
    for process in processes.values():
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
    wall: dict[str, list[float]] = {name: [] for name in trees}
    cpu: dict[str, list[float]] = {name: [] for name in trees}
    for index in range(rounds):
        for name in list(trees)[:: 1 if index % 2 else -1]:
            seconds = ask(processes[name])
            wall[name].append(seconds[0])
            cpu[name].append(seconds[1])
    for process in processes.values():
        process.communicate()
    record: dict[str, object] = {}
    for name in trees:
        middle = sorted(cpu[name])[rounds // 2]
        record[name] = {"cpu": middle, "wall": sorted(wall[name])[rounds // 2], "images_per_cpu_second": BATCH / middle}
        print(f"{recipe:10} {name:8} {middle * 1e3:7.0f} ms CPU, {BATCH / middle:6.0f} images per CPU second")
    for kind, seconds in (("cpu", cpu), ("wall", wall)):
        middle, low, high = ratio(seconds, "now", "earlier")
        record[f"ratio_{kind}"] = [middle, low, high]
        print(f"{recipe:10} {kind:8} {middle:7.2f} times as fast ({low:.2f} .. {high:.2f})")
    return record


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--earlier", type=Path)
    parser.add_argument("--recipes", nargs="+", default=["demo"])
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.earlier is None and not options.work:
        parser.error("--earlier is missing: the folder of an earlier tree")
    if options.work:
        work(options.recipes[0], options.steps)
        return
    from interleave import write

    trees = {"earlier": options.earlier, "now": Path(__file__).parents[1]}
    record = {recipe: compare(recipe, trees, options.rounds, options.steps) for recipe in options.recipes}
    print(f"written: {write('small_step', record).name}")


if __name__ == "__main__":
    main()
