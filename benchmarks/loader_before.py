"""Are small images delivered as fast as before? The loader of this tree against that of an earlier one.

    git worktree add /tmp/earlier COMMIT
    python benchmarks/loader_before.py --earlier /tmp/earlier [--images 10000] [--rounds 9] [--workers 1]

CIFAR-10 at 32 x 32: random crops, flips, normalised batches of 250. Each tree has its own process; the two take turns,
and the order reverses every round. Timed are the first epoch, with the cache still to be built, and a later one, in
CPU time of all threads, so that images/s are those of one core.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

EPOCHS = 3  # of the cache, in one turn


def work(images: int, workers: int) -> None:
    """What a process does: for every line on stdin, images/s of a core in the first epoch and in later ones."""
    import torch
    from loader import Setting, epochs, first_epoch, make_data, speed_of

    from echoless.data import AugmentConfig

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        path, _, size = make_data("cifar10", images, Path(folder))
        setting = Setting(size, workers, AugmentConfig())
        first_epoch(path, setting)
        print("ready", flush=True)
        for _ in sys.stdin:
            first, opened = first_epoch(path, setting)
            later = speed_of(partial(epochs, opened, setting, 1, EPOCHS))
            print(first.core, later.core, flush=True)


def start(tree: Path, options: argparse.Namespace) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--work", "--images", str(options.images), "--workers", str(options.workers)]
    environment = os.environ | {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    return process.stdout.readline().split()


def compare(options: argparse.Namespace) -> None:
    from interleave import ratio, write

    trees = {"earlier": options.earlier, "now": Path(__file__).resolve().parents[1]}
    processes = {name: start(tree, options) for name, tree in trees.items()}
    for process in processes.values():
        answer(process)
    seconds: dict[str, dict[str, list[float]]] = {kind: {name: [] for name in trees} for kind in ("first", "later")}
    for index in range(options.rounds):
        for name in list(trees)[:: 1 if index % 2 else -1]:
            print("go", file=processes[name].stdin, flush=True)
            for kind, value in zip(seconds, answer(processes[name])):
                seconds[kind][name].append(1 / float(value))
    for process in processes.values():
        process.communicate()
    for kind, each in seconds.items():
        rates = {name: 1 / sorted(values)[options.rounds // 2] for name, values in each.items()}
        middle, low, high = ratio(each, "now", "earlier")
        speeds = ", ".join(f"{name} {rate:,.0f} images/s of a core" for name, rate in rates.items())
        print(f"{kind} epoch: {speeds}; {middle:.2f} times as fast ({low:.2f} .. {high:.2f})")
    print(f"written: {write('loader_before', {'images': options.images, 'seconds': seconds}).name}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--earlier", type=Path)
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(options.images, options.workers)
    elif options.earlier is None:
        parser.error("--earlier is missing: the folder of an earlier tree")
    else:
        compare(options)


if __name__ == "__main__":
    main()
