"""How are two sides compared on a noisy machine? In turns, in one process, and as a ratio of medians.

Imported by the other benchmarks; run on its own it measures the matmul peak of this machine.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from echoless.products import matrix_product

RESULTS = Path(__file__).parent / "results"


def take_turns(
    sides: Mapping[str, Callable[[], object]],
    rounds: int,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds of every call, one call of each side in turn; the order reverses every round."""
    for _ in range(warmup):
        for run in sides.values():
            run()
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for index in range(rounds):
        for name in list(sides)[:: 1 if index % 2 else -1]:
            start = clock()
            sides[name]()
            seconds[name].append(clock() - start)
    return seconds


def ratio(seconds: Mapping[str, list[float]], ours: str, theirs: str) -> tuple[float, float, float]:
    """How many times faster ours is: the median over rounds of theirs / ours, and its quartiles."""
    each = sorted(b / a for a, b in zip(seconds[ours], seconds[theirs]))
    low, middle, high = statistics.quantiles(each, n=4) if len(each) > 1 else (each[0],) * 3
    return middle, low, high


def matmul_peak(size: int = 2048, rounds: int = 5) -> float:
    """FLOP/s of the best of a few square float32 products, by the faster of the two libraries in torch."""
    a, b = torch.randn(size, size), torch.randn(size, size)
    runs = take_turns({"torch": lambda: a @ b, "ours": lambda: matrix_product(a, b)}, rounds)
    return 2 * size**3 / min(min(seconds) for seconds in runs.values())


def count_flops(run: Callable[[], object]) -> int:
    """Those of its matrix products, also of products that torch's counter does not know."""
    with FlopCounterMode(display=False, custom_mapping={torch.ops.mkldnn._linear_pointwise: _flops}) as counter:
        run()
    return counter.get_total_flops()


def _flops(x_shape: torch.Size, weight_shape: torch.Size, *rest: object, **named: object) -> int:
    return 2 * x_shape.numel() * weight_shape[0]


def write(name: str, record: Mapping[str, Any]) -> Path:
    """Keep the figures beside the script, with the machine they are of."""
    RESULTS.mkdir(exist_ok=True)
    machine = {"processor": platform.processor() or platform.machine(), "threads": torch.get_num_threads()}
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({**record, "torch": torch.__version__, **machine}, indent=2) + "\n")
    return path


if __name__ == "__main__":
    print(f"matmul peak: {matmul_peak() / 1e9:.0f} GFLOP/s on {torch.get_num_threads()} threads")
