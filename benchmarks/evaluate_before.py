"""`evaluate --layers all` from nothing on one core: this tree against an earlier one.

    git worktree add /tmp/earlier COMMIT
    python benchmarks/evaluate_before.py --earlier /tmp/earlier [--train DATA --test DATA] [--rounds 3]

The whole command, started as a user starts it, with one thread and with empty caches. The two trees take turns, and the
order reverses every round. Seconds on the clock and of CPU time. Both measure the same run (a few steps of --recipe, so
that no branch is zero any more), and the largest difference between their numbers is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from interleave import ratio, write

STEPS = 3


def run(tree: Path, work: Path, *words: str) -> tuple[float, float, str]:
    """Seconds on the clock, CPU seconds, and what `echoless WORDS` of this tree printed."""
    environment = os.environ | {
        "PYTHONPATH": str(tree / "src"),
        "OMP_NUM_THREADS": "1",
        "ECHOLESS_CACHE": str(work / "cache"),
    }
    wall, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "echoless", *words]
    printed = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - wall, cpu, printed


def from_nothing(tree: Path, work: Path, words: list[str]) -> tuple[float, float, dict[str, float]]:
    for kept in (work / "cache", work / "run" / "features", work / "run" / "results.json"):
        shutil.rmtree(kept, ignore_errors=True) if kept.is_dir() else kept.unlink(missing_ok=True)
    wall, cpu, printed = run(tree, work, "evaluate", str(work / "run"), *words, "--json")
    records = [json.loads(line) for line in printed.splitlines()]
    return wall, cpu, {f"{each['metric']} {json.dumps(each['protocol'])}": each["value"] for each in records}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--earlier", type=Path, required=True)
    parser.add_argument("--train", default="shapes:5000")
    parser.add_argument("--test", default="shapes:1000@test")
    parser.add_argument("--recipe", default="cifar10")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    trees = {"earlier": options.earlier, "now": Path(__file__).parents[1]}
    wall: dict[str, list[float]] = {name: [] for name in trees}
    cpu: dict[str, list[float]] = {name: [] for name in trees}
    numbers: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        work, words = Path(folder), ["--train", options.train, "--test", options.test, "--layers", "all"]
        made = ["pretrain", options.train, "--out", str(work / "run"), "--recipe", options.recipe]
        run(trees["now"], work, *made, "--max-steps", str(STEPS))
        for index in range(options.rounds):
            for name in list(trees)[:: 1 if index % 2 else -1]:
                on_clock, of_cpu, numbers[name] = from_nothing(trees[name], work, words)
                wall[name].append(on_clock)
                cpu[name].append(of_cpu)
                print(f"round {index + 1}: {name:8} {of_cpu:7.1f} s CPU, {on_clock:7.1f} s", flush=True)
    assert numbers["earlier"].keys() == numbers["now"].keys()
    differences = {what: abs(numbers["now"][what] - value) for what, value in numbers["earlier"].items()}
    record: dict[str, object] = {"cpu": cpu, "wall": wall, "largest difference": max(differences.values())}
    for kind, seconds in (("cpu", cpu), ("wall", wall)):
        middle, low, high = ratio(seconds, "now", "earlier")
        record[f"ratio_{kind}"] = [middle, low, high]
        print(f"{kind:8} {middle:7.2f} times as fast ({low:.2f} .. {high:.2f})")
    changed = sum(difference > 0 for difference in differences.values())
    print(f"{changed} of {len(differences)} numbers differ, by at most {max(differences.values()):.2g}")
    print(f"written: {write('evaluate_before', record).name}")


if __name__ == "__main__":
    main()
