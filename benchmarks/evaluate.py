"""How fast are the measurements, next to what people use today?

    python benchmarks/evaluate.py [--rounds 5] [--threads 2] [--features FILE.npz] [--only knn probe]

Each comparison runs its contenders in turn, round after round, so that a busy moment of the machine hits all of them,
and reports the median over the rounds of each ratio. Prints one line per figure and writes results/evaluate.json.
FILE.npz holds train, train_labels, test and test_labels; without it, features are drawn: 50,000 and 10,000 rows of 192
correlated dimensions in ten overlapping classes.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from interleave import ratio, take_turns, write
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

from echoless.measures import accuracy, imagenet100_probe, knn_classify, memory_estimate, quick_probe

K, TEMPERATURE = 20, 0.07


class Features(NamedTuple):
    train: Tensor
    train_labels: Tensor
    test: Tensor
    test_labels: Tensor


def drawn_features(rows: int = 50_000, queries: int = 10_000, dim: int = 192, classes: int = 10) -> Features:
    """Class centres and noise in 64 latent directions, bent, then mixed with a falling spectrum, as features are."""
    generator = torch.Generator().manual_seed(0)
    centres = 0.28 * torch.randn(classes, 64, generator=generator)
    mixing = torch.randn(64, dim, generator=generator) * torch.logspace(0, -1.5, 64).unsqueeze(1)

    def draw(n: int) -> tuple[Tensor, Tensor]:
        labels = torch.randint(classes, (n,), generator=generator)
        latent = centres[labels] + torch.randn(n, 64, generator=generator)
        latent = latent + 0.25 * latent * latent.roll(1, dims=1)
        return latent @ mixing + 0.02 * torch.randn(n, dim, generator=generator) + 1, labels

    return Features(*draw(rows), *draw(queries))


def stored_features(path: Path) -> Features:
    with np.load(path, allow_pickle=False) as arrays:
        return Features(*(torch.from_numpy(arrays[name]) for name in Features._fields))


def race(contenders: dict[str, Callable[[], Tensor]], rounds: int) -> tuple[dict[str, list[float]], dict[str, Tensor]]:
    """Seconds of every contender in every round, and what each of them returned."""
    outcomes: dict[str, Tensor] = {}
    keep = {name: lambda name=name, run=run: outcomes.update({name: run()}) for name, run in contenders.items()}
    return take_turns(keep, rounds, warmup=0), outcomes


def peak_memory(run: Callable[[], Tensor]) -> int | None:
    """Bytes by which the resident memory rose at its highest; None where the system does not say."""

    def resident(field: str) -> int:
        return int(re.search(rf"{field}:\s+(\d+)", Path("/proc/self/status").read_text())[1]) * 1024  # type: ignore[index]

    try:
        Path("/proc/self/clear_refs").write_text("5")  # lowers the high-water mark to the present
        before = resident("VmRSS")
    except OSError:
        return None
    run()
    return resident("VmHWM") - before


def compare_knn(features: Features, rounds: int) -> dict[str, Any]:
    """Everyone gets raw features and hands back predictions: normalising, indexing, search and vote included."""
    classes = int(features.train_labels.max()) + 1

    def ours() -> Tensor:
        return knn_classify(features.train, features.train_labels, features.test, K, TEMPERATURE)[K]

    def with_faiss() -> Tensor:
        bank, queries = features.train.numpy().copy(), features.test.numpy().copy()
        faiss.normalize_L2(bank)
        faiss.normalize_L2(queries)
        index = faiss.IndexFlatIP(bank.shape[1])
        index.add(bank)
        similarities, rows = (torch.from_numpy(found) for found in index.search(queries, K))
        votes = torch.zeros(len(queries), classes)
        return votes.scatter_add_(1, features.train_labels[rows], (similarities / TEMPERATURE).exp()).argmax(dim=1)

    def with_sklearn() -> Tensor:
        model = KNeighborsClassifier(
            K, algorithm="brute", metric="cosine", weights=lambda distance: np.exp((1 - distance) / TEMPERATURE)
        )
        model.fit(features.train.numpy(), features.train_labels.numpy())
        return torch.from_numpy(model.predict(features.test.numpy()))

    memory = peak_memory(ours)
    seconds, predictions = race({"echoless": ours, "faiss": with_faiss, "sklearn": with_sklearn}, rounds)
    return {
        "seconds": seconds,
        "accuracy": {name: accuracy(p, features.test_labels) for name, p in predictions.items()},
        "times as fast as faiss IndexFlatIP (goal 1.0)": ratio(seconds, "echoless", "faiss")[0],
        "times as fast as scikit-learn brute (goal 5)": ratio(seconds, "echoless", "sklearn")[0],
        "peak memory beyond the features, bytes": memory,
        "estimate for 1,281,167 x 768 against 50,000, bytes": memory_estimate(1_281_167, 50_000, 768, K),
    }


def compare_probes(features: Features, rounds: int) -> dict[str, Any]:
    def run(probe: Callable[..., Any]) -> Callable[[], Tensor]:
        return lambda: probe(features.train, features.train_labels, generator=torch.Generator().manual_seed(0)).predict(
            features.test
        )

    seconds, predictions = race({"quick": run(quick_probe), "imagenet100": run(imagenet100_probe)}, rounds)
    scores = {name: accuracy(p, features.test_labels) for name, p in predictions.items()}
    return {
        "seconds": seconds,
        "accuracy": scores,
        "times as fast as imagenet100 (goal 20)": ratio(seconds, "quick", "imagenet100")[0],
        "points below imagenet100 (goal: at most 0.5)": 100 * (scores["imagenet100"] - scores["quick"]),
    }


COMPARISONS: dict[str, Callable[[Features, int], dict[str, Any]]] = {"knn": compare_knn, "probe": compare_probes}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--features", type=Path)
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    features = stored_features(options.features) if options.features else drawn_features()
    shapes = {name: list(value.shape) for name, value in features._asdict().items()}
    results: dict[str, Any] = {"rounds": options.rounds, "shapes": shapes}
    with threadpool_limits(limits=options.threads):
        for name in options.only:
            results[name] = COMPARISONS[name](features, options.rounds)
            for what, value in results[name].items():
                if isinstance(value, float | int):
                    print(f"{name}: {what}: {value:.4g}", flush=True)
                else:
                    print(f"{name}: {what}: {json.dumps(value)}", flush=True)
            write("evaluate", results)


if __name__ == "__main__":
    main()
