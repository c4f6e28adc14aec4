"""Seconds to initialise a ViT-B without shortcuts, against the slow way: one full SVD for each head of each block.

    python benchmarks/skipless.py [--threads 2] [--full 4]

Ours takes the leading singular vectors from the eigenvectors of M^T M in double precision. The slow way is timed on a
few of the 144 matrices and multiplied; the largest difference of the two truncated products is printed, because a fast
answer must be the same answer. The goal is 60 seconds on two cores.
"""

from __future__ import annotations

import argparse
import math
import time

import torch
from interleave import write

from echoless.config import ShortcutConfig, ViTConfig
from echoless.models import ViT
from echoless.shortcuts import init_skipless_, query_key_pair

GOAL = 60.0
WIDTH, HEADS, DEPTH = 768, 12, 12


def vit_b_seconds() -> float:
    config = ViTConfig(zero_init=False, shortcuts=ShortcutConfig(variant="none"))
    model = ViT(config, torch.Generator().manual_seed(0))
    started = time.perf_counter()
    init_skipless_(model, generator=torch.Generator().manual_seed(1))
    return time.perf_counter() - started


def slow_way(count: int) -> tuple[float, float]:
    """Seconds for all heads of all blocks by full SVDs, and how far the truncated products lie apart."""
    queries, keys = query_key_pair(WIDTH, HEADS, 2.0, 0.6, torch.Generator().manual_seed(2))
    generator, seconds, furthest = torch.Generator().manual_seed(2), 0.0, 0.0
    for head in range(count):
        Z = torch.randn(WIDTH, WIDTH, dtype=torch.float64, generator=generator)
        target = 2.0 / math.sqrt(WIDTH) * Z + 0.6 * torch.eye(WIDTH, dtype=torch.float64)
        started = time.perf_counter()
        U, S, Vh = torch.linalg.svd(target)
        seconds += time.perf_counter() - started
        kept = WIDTH // HEADS
        expected = (U[:, :kept] * S[:kept]) @ Vh[:kept]
        furthest = max(furthest, float((queries[head] @ keys[head].T - expected).abs().max()))
    return seconds / count * HEADS * DEPTH, furthest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--full", type=int, default=4, help="matrices to decompose the slow way, at most 12")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    ours = vit_b_seconds()
    slow, furthest = slow_way(min(options.full, HEADS))
    print(
        f"init_skipless_ of ViT-B: {ours:.1f} s on {options.threads} threads (goal {GOAL:.0f}); its 144 full SVDs "
        f"alone would take {slow:.0f} s; largest difference of the truncated products {furthest:.1e}"
    )
    write("skipless", {"seconds": ours, "slow_way": slow, "difference": furthest})


if __name__ == "__main__":
    main()
