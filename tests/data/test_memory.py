"""Proves that memory does not grow with the data set: point 4 of the data's promises, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ITERATE = """
import re, sys
from pathlib import Path
from echoless.data import AugmentConfig, Loader, measure_statistics, open_images
images = open_images(sys.argv[1])
facts = measure_statistics(images)
loader = Loader(images, size=(32, 32), batch_size=250, seed=0, mean=facts.mean, std=facts.std,
                augment=AugmentConfig(), workers=2)
most = 0
for batch in loader.batches(0, len(images) // 250):
    status = Path("/proc/self/status").read_text()
    most = max(most, int(re.search(r"RssAnon:\\s+(\\d+)", status)[1]))
print(len(images), most)
"""


def _anonymous_megabytes(data: Path) -> float:
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", ITERATE, str(data)]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return int(result.stdout.split()[1]) / 1024


def _write_parquet(path: Path, count: int) -> None:
    """Tiny JPEGs in row groups of 2,000: the size of the set is what counts here."""
    import io

    import pyarrow as pa
    import pyarrow.parquet as pq
    from PIL import Image

    rng = np.random.default_rng(0)
    blobs = []
    for _ in range(50):
        file = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(file, "JPEG")
        blobs.append(file.getvalue())
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [{"bytes": blobs[i % 50], "path": f"{i}.jpg"} for i in range(count)]
    pq.write_table(pa.table({"image": pa.array(rows, kind)}), path, row_group_size=2000)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="SKIPPED LOUDLY: no /proc to read RssAnon from")
@pytest.mark.parametrize("large", [10_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_anonymous_memory_is_the_same_for_small_and_large_sets(large: int, tmp_path: Path) -> None:
    """One epoch, cache build included, over 5,000 images and over many more."""
    _write_parquet(tmp_path / "small.parquet", 5000)
    _write_parquet(tmp_path / "large.parquet", large)
    small_mb, large_mb = (_anonymous_megabytes(tmp_path / f"{name}.parquet") for name in ("small", "large"))
    print(f"RssAnon MB: 5000 images={small_mb:.0f} {large} images={large_mb:.0f} difference={large_mb - small_mb:.0f}")
    assert large_mb - small_mb < 100
