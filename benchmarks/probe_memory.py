"""What does `evaluate --probe mae` hold in memory? Its published batch is 16,384 random crops of 224 x 224, or 9.9 GB.

    python benchmarks/probe_memory.py [--counts 1024 16384]

`shapes` cropped to 224 x 224, and an encoder that averages the pixels of 8 x 8 regions, so that the rest is measured: a
batch is all images, for one epoch. RssAnon is the memory that the process holds and the system cannot take back; its
largest value is beside the bytes of the batch. Each count has a process of its own. Writes results/probe_memory.json.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time

import torch
import torch.nn.functional as F
from embed_scale import Memory
from interleave import write

SIDE = 224


def measure(count: int) -> dict[str, float]:
    from echoless.data import open_images
    from echoless.evaluation.augmented import mae_linear
    from echoless.evaluation.encoder import from_function
    from echoless.evaluation.extract import View, extract

    torch.set_num_threads(1)
    encoder = from_function(
        lambda images: F.avg_pool2d(images, SIDE // 8).flatten(1),
        image_size=(SIDE, SIDE),
        channels=3,
        fingerprint="stub",
    )
    train, view = open_images(f"shapes:{count}"), View("output")
    test = extract(encoder, open_images("shapes:64@test"), [view], cache=None)[view]
    memory = Memory()
    before, start = memory.look(), time.process_time()
    memory.start()
    metric = mae_linear(encoder, train, test, view=view, seed=0, epochs=1)
    return {
        "images in a batch": metric.protocol["batch_size"],
        "batch, MB": count * 3 * SIDE * SIDE * 4 / 1e6,
        "RssAnon before, MB": before,
        "RssAnon, MB": memory.finish(),
        "seconds": time.process_time() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--counts", type=int, nargs="+", default=[1024, 16_384])
    parser.add_argument("--measure", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure)))
        return
    found = []
    for count in options.counts:
        words = [sys.executable, __file__, "--measure", str(count)]
        env = os.environ | {"OMP_NUM_THREADS": "1"}
        done = subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE, text=True)
        found.append(json.loads(done.stdout))
        print("  ".join(f"{name} {value:,.1f}" for name, value in found[-1].items()), flush=True)
    write("probe_memory", {"counts": found})


if __name__ == "__main__":
    main()
