"""Kill a run at random instants until it completes, and compare it bit by bit with one that was never killed.

    python tests/reliability/kill.py FOLDER --kills 10 --workers 0 --seed 0 --objective dino

Children are forked from a warmed parent that has run no parallel torch operation. Saves are slowed down, so that a
good share of the kills falls inside one. Prints one line of evidence; exits 1 on a mismatch.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from tiny import fingerprint, silence, tiny_family, tiny_images, tiny_run

import echoless.runs.checkpoint as checkpoint_module

EVERY = 4


def slow_saves(seconds: float) -> None:
    original = checkpoint_module.write_tensors

    def slowly(*arguments, **options):
        time.sleep(seconds)
        return original(*arguments, **options)

    checkpoint_module.write_tensors = slowly


def one_life(out: Path, images, config, workers: int, lifetime: float) -> tuple[bool, bool]:
    """Start or resume, kill after `lifetime` seconds. Returns whether it was killed, and whether inside a save."""
    child = os.fork()
    if child == 0:
        silence()
        slow_saves(0.15)
        try:
            tiny_run(out, images, config, resume=out.exists(), workers=workers, checkpoint_every=EVERY)
            os._exit(0)
        except BaseException:
            os._exit(9)
    deadline = time.monotonic() + lifetime
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            assert os.waitstatus_to_exitcode(status) == 0, f"the run failed: {status}"
            return False, False
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return True, any((out / "checkpoints").glob("*.tmp-*")) if (out / "checkpoints").exists() else False


def newest(out: Path) -> int:
    steps = [int(path.name[5:]) for path in (out / "checkpoints").glob("step-????????")] if out.exists() else []
    return max(steps, default=0)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=24)
    parser.add_argument(
        "--objective", choices=("masked", "foreign", "infonce", "dino", "uvit", "sit"), default="masked"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    draw = random.Random(options.seed)

    images = tiny_images()
    steps = options.steps
    config = tiny_family(images, options.objective, steps=steps)
    whole = options.folder / "whole"
    started = time.monotonic()
    one_life(whole, images, config, options.workers, 600)
    length = time.monotonic() - started
    expected = fingerprint(whole, steps)

    kills = in_save = runs = mismatches = lost = 0
    while kills < options.kills:
        out, killed = options.folder / f"run{runs}", True
        runs += 1
        while killed:
            lifetime = draw.uniform(0.05, 0.9) * length if kills < options.kills else 600
            killed, inside = one_life(out, images, config, options.workers, lifetime)
            kills, in_save = kills + killed, in_save + inside
            # Metrics are written after every step: what was done beyond the newest checkpoint is what is lost.
            if killed and (out / "metrics.jsonl").exists():
                lines = (out / "metrics.jsonl").read_bytes().count(b"\n")
                lost = max(lost, lines - newest(out))
        mismatches += fingerprint(out, steps) != expected
        shutil.rmtree(out)
    print(
        f"R1 {options.objective} runs={runs} kills={kills} in_save={in_save} workers={options.workers} "
        f"mismatches={mismatches}; R2 steps lost at most {lost}, checkpoint interval {EVERY}"
    )
    return int(mismatches > 0 or lost > EVERY + 1)


if __name__ == "__main__":
    sys.exit(main())
