"""Memory does not grow with the data set: anonymous resident memory while training on 5,000 and on 50,000 images.

pytest tests/reliability/test_memory.py -s -m "slow or not slow"
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TRAIN = """
import re, sys
from pathlib import Path
sys.path.insert(0, {here!r})
from tiny import tiny_config, tiny_images, tiny_run
import echoless.training.loop as loop
from unittest import mock
from echoless.runs import RunFolder
def anonymous():
    return int(re.search(r"RssAnon:\\s+(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
images = tiny_images({count})
out = Path({out!r})
with mock.patch.object(loop, "peak_memory_mb", anonymous):  # what each line of metrics.jsonl records
    tiny_run(out, images, tiny_config(images, steps=30), workers=2)
print(max(line["memory_mb"] for line in RunFolder(out).read_metrics()))
"""


def anonymous_mb(count: int, folder: Path) -> float:
    code = TRAIN.format(here=str(Path(__file__).parent), count=count, out=str(folder / f"run{count}"))
    env = os.environ | {"OMP_NUM_THREADS": "1", "ECHOLESS_CACHE": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, check=False)
    assert done.returncode == 0, done.stderr
    return float(done.stdout.split()[-1])


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="NOT RUN: no /proc to read RssAnon from")
@pytest.mark.slow
def test_training_on_more_images_takes_no_more_memory(tmp_path):
    small_mb, large_mb = (anonymous_mb(count, tmp_path) for count in (5_000, 50_000))
    print(f"RssAnon MB while training: 5000 images={small_mb:.0f} 50000 images={large_mb:.0f}")
    assert large_mb - small_mb < 100
