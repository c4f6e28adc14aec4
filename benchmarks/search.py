"""Does `search` find what is there, and how fast? Beside faiss on 10^5 vectors, and on images with planted copies.

    python benchmarks/search.py [--rounds 5] [--vectors 100000] [--dim 192] [--threads 1]
    python benchmarks/search.py --run RUN --images IMAGES.parquet [--copies 300]

The first: drawn features (correlated, in overlapping clusters) in a parquet file as `embed` writes it. The same
neighbours as faiss IndexFlatIP, for one query, for a thousand, and for all rows; times in turns, from vectors in memory
(one normalises, the other too), and from the file, and reported as the median over the rounds of each ratio. Seconds
are CPU time, because others share the machine.

The second: the images of a Hugging Face parquet as files, beside copies of some of them: re-encoded as JPEG of quality
50, cropped by 2 %, and mirrored. They are embedded by RUN and searched for duplicates. Prints recall for each kind of
copy, and precision: the share of pairs in a group that are an image and its copy. Pairs that the set itself holds count
as wrong. Writes results/search.json.
"""

from __future__ import annotations

import argparse
import io
import itertools
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from evaluate import drawn_features
from interleave import ratio, take_turns, write
from PIL import Image
from threadpoolctl import threadpool_limits

import echoless
from echoless.evaluation.duplicates import ALTERATIONS
from echoless.evaluation.feature_table import FeatureTable
from echoless.measures import duplicate_groups, nearest_in_blocks, nearest_others

K = 20
Found = tuple[torch.Tensor, torch.Tensor]


def write_features(file: Path, vectors: np.ndarray) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    table = pa.table({"path": [f"{row:08d}.jpg" for row in range(len(vectors))], "feature": lists})
    pq.write_table(table, file, compression="none", use_dictionary=["path"], row_group_size=1024)


def by_faiss(bank: np.ndarray, queries: np.ndarray, k: int) -> Found:
    bank, queries = bank.copy(), queries.copy()
    faiss.normalize_L2(bank)
    faiss.normalize_L2(queries)
    index = faiss.IndexFlatIP(bank.shape[1])
    index.add(bank)
    return tuple(torch.from_numpy(each) for each in index.search(queries, k))  # type: ignore[return-value]


def equal_neighbours(ours: Found, theirs: Found) -> float:
    """The share of neighbours that are the same row, or a row of the same similarity to 1e-6."""
    same = (ours[1] == theirs[1]) | ((ours[0] - theirs[0]).abs() <= 1e-6)
    return float(same.float().mean())


def compare_with_faiss(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    features = drawn_features(options.vectors, 1000, options.dim)
    bank, queries = features.train.numpy(), features.test.numpy()
    file = folder / "features.parquet"
    write_features(file, bank)
    read = lambda: np.concatenate(  # noqa: E731
        [
            batch.column(0).flatten().to_numpy(zero_copy_only=False).reshape(len(batch), -1)
            for batch in pq.ParquetFile(file).iter_batches(65_536, columns=["feature"])
        ]
    )
    cases: dict[str, tuple[Callable[[], Found], Callable[[], Found], int]] = {
        "one query": (lambda: nearest_in_blocks([bank], queries[:1], K), lambda: by_faiss(bank, queries[:1], K), 1),
        "1000 queries": (lambda: nearest_in_blocks([bank], queries, K), lambda: by_faiss(bank, queries, K), 1),
        "one query, from the file": (
            lambda: nearest_in_blocks(FeatureTable(file).blocks(), queries[:1], K),
            lambda: by_faiss(read(), queries[:1], K),
            1,
        ),
        "all rows, as for duplicates": (
            lambda: nearest_others(bank, K),
            lambda: tuple(each[:, 1:] for each in by_faiss(bank, bank, K + 1)),  # type: ignore[return-value]
            options.rounds,
        ),
    }
    results: dict[str, Any] = {}
    for name, (ours, theirs, fewer) in cases.items():
        agree = equal_neighbours(ours(), theirs())
        rounds = max(1, options.rounds // fewer)
        seconds = take_turns({"ours": ours, "faiss": theirs}, rounds, warmup=0, clock=time.process_time)
        faster, low, high = ratio(seconds, "ours", "faiss")
        results[name] = {"equal neighbours": agree, "times as fast": faster, "seconds": seconds}
        print(
            f"{name}: {100 * agree:.4f} % of the neighbours equal; {faster:.2f} ({low:.2f} .. {high:.2f}) times as "
            f"fast as faiss; {min(seconds['ours']):.3f} s against {min(seconds['faiss']):.3f} s",
            flush=True,
        )
    return results


def plant_copies(images: Path, folder: Path, count: int) -> dict[str, str]:
    """Writes every image as a file, and the copies beside them; returns copy -> original."""
    rows = pq.read_table(images).column("image").combine_chunks().field("bytes").to_pylist()
    (folder / "originals").mkdir(parents=True)
    copies: dict[str, str] = {}
    for number, data in enumerate(rows):
        (folder / "originals" / f"{number:06d}.jpg").write_bytes(data)
    drawn = np.random.default_rng(0).permutation(len(rows))
    for place, (name, alter) in enumerate(ALTERATIONS.items()):
        (folder / name).mkdir()
        for number in drawn[place * count : (place + 1) * count].tolist():
            copy = f"{name}/{number:06d}.{'jpg' if 'JPEG' in name else 'png'}"
            alter(Image.open(io.BytesIO(rows[number])).convert("RGB")).save(folder / copy, quality=50)
            copies[copy] = f"originals/{number:06d}.jpg"
    return copies


def find_copies(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    copies = plant_copies(options.images, folder / "images", options.copies)
    rows = echoless.embed(options.run, folder / "images", out=folder / "features.parquet", labels="none")
    results: dict[str, Any] = {"images": rows, "copies of each kind": options.copies}
    found = echoless.search(folder / "features.parquet", duplicates=True, out=folder / "search.html")
    print(*found.notes, sep="\n")
    groups: dict[int, list[str]] = {}
    for row in found.duplicates.to_pylist():
        groups.setdefault(row["group"], []).append(row["path"])
    results["by pixels"] = score(list(groups.values()), copies)
    results["by features"] = by_features(FeatureTable(folder / "features.parquet"), copies)
    return results


def by_features(table: FeatureTable, copies: dict[str, str]) -> dict[str, float]:
    """With the best threshold of all, which nobody knows beforehand: an upper limit of what features alone can do."""
    values, rows = nearest_others(table.vectors(), K)
    paths = table.words("path").to_pylist()

    def named(threshold: float) -> list[list[str]]:
        return [[paths[row] for row in group] for group in duplicate_groups(values, rows, threshold)]

    thresholds = torch.quantile(values[:, 0], torch.linspace(0.5, 1, 101)).tolist()
    best = max(thresholds, key=lambda threshold: _f1(score(named(threshold), copies, shown=False)))
    print(f"features alone, with the best threshold of all, {best:.5f}:")
    return score(named(best), copies)


def _f1(scores: dict[str, float]) -> float:
    recall = float(np.mean([value for name, value in scores.items() if name.startswith("recall")]))
    return 2 * recall * scores["precision"] / max(recall + scores["precision"], 1e-9)


def score(groups: list[list[str]], copies: dict[str, str], shown: bool = True) -> dict[str, float]:
    sizes = sum(len(group) * (len(group) - 1) // 2 for group in groups)
    true = {frozenset(pair) for pair in copies.items()}
    place = {path: number for number, group in enumerate(groups) for path in group}
    right = [pair for pair in copies.items() if pair[0] in place and place[pair[0]] == place.get(pair[1])]
    scores = {"precision": len(right) / max(sizes, 1)}
    for name in ALTERATIONS:
        own = [pair for pair in copies.items() if pair[0].startswith(f"{name}/")]
        scores[f"recall, {name}"] = len([pair for pair in own if pair in right]) / len(own)
    if shown:
        print("  " + "; ".join(f"{name} {100 * value:.2f} %" for name, value in scores.items()), flush=True)
        print(f"  {sizes} pairs in {len(groups)} groups, {sizes - len(right)} of them not planted")
        wrong = (pair for group in groups for pair in itertools.combinations(group, 2) if frozenset(pair) not in true)
        print(*(f"    {one}  {other}" for one, other in itertools.islice(wrong, 10)), sep="\n")
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vectors", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=192)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--images", type=Path)
    parser.add_argument("--copies", type=int, default=300)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    faiss.omp_set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(limits=options.threads):
        if options.run is not None:
            write("search_duplicates", find_copies(options, Path(folder)))
        else:
            write(
                "search", {"vectors": options.vectors, "dim": options.dim, **compare_with_faiss(options, Path(folder))}
            )


if __name__ == "__main__":
    main()
