"""How long does a page of ten long runs take, and how much memory?

    python benchmarks/report.py [--runs 10] [--steps 10000] [--points 10000]

Makes run folders with that many recorded steps and t-SNE points each, renders them in a process of its own, and prints
its time, its largest resident size and the size of the page: under 20 s, 1.5 GB and 8 MB. Writes results/report.json.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "reports"))

_RENDER = """
import json, resource, sys, time
started = time.perf_counter()
from echoless.reports.page import report
page = report(sys.argv[2:], sys.argv[1])
seconds = time.perf_counter() - started
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform != "darwin" else 2**20)
print(json.dumps({"seconds": seconds, "peak_mb": peak, "page_mb": page.stat().st_size / 1e6}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("runs", 10), ("steps", 10_000), ("points", 10_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    chosen = parser.parse_args()
    from interleave import write
    from made_runs import make_run

    with tempfile.TemporaryDirectory() as folder:
        runs = [
            make_run(Path(folder) / f"run{i}", seed=i, alpha_min=1 - 0.04 * i, steps=chosen.steps, points=chosen.points)
            for i in range(chosen.runs)
        ]
        words = [sys.executable, "-c", _RENDER, f"{folder}/page.html", *map(str, runs)]
        began, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        found = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        found["processor_seconds"] = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        found["with_start_up"] = time.perf_counter() - began
    print(
        f"report: {chosen.runs} runs x {chosen.steps} steps x {chosen.points} points: {found['seconds']:.1f} s "
        f"({found['processor_seconds']:.1f} s of processor time), {found['peak_mb']:.0f} MB, "
        f"page {found['page_mb']:.2f} MB"
    )
    write("report", vars(chosen) | found)


if __name__ == "__main__":
    main()
