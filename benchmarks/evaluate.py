"""How fast are the measurements, next to what people use today?

    python benchmarks/evaluate.py [--rounds 5] [--threads 2] [--cpu] [--features FILE.npz] [--only knn probe embedding]

Each comparison runs its contenders in turn, round after round, so that a busy moment of the machine hits all of them,
and reports the median over the rounds of each ratio. Prints one line per figure and writes results/evaluate.json.
FILE.npz holds train, train_labels, test and test_labels; without it, features are drawn: 50,000 and 10,000 rows of 192
correlated dimensions in ten overlapping classes. Embedding: one encoder (192 x 12, patch 16), ours and as exported
to transformers, on the same JPEG files of 224 x 224, from the file to the vector; both must give the same vectors.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import faiss
import numpy as np
import torch
from interleave import ratio, take_turns, write
from PIL import Image
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits
from torch import Tensor

from echoless.config import mae_preset, to_dict
from echoless.data import open_images
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import CHUNK, View, extract
from echoless.evaluation.frozen import load
from echoless.exchange import export_encoder
from echoless.measures import accuracy, imagenet100_probe, knn_classify, memory_estimate, quick_probe
from echoless.models import ViT
from echoless.runs import save_weights

K, TEMPERATURE = 20, 0.07
IMAGES = 256
CLOCK = {"used": time.perf_counter}  # --cpu: CPU time instead, for a busy machine


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
    return take_turns(keep, rounds, warmup=0, clock=CLOCK["used"]), outcomes


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
        "its quartiles": ratio(seconds, "quick", "imagenet100")[1:],
        "points below imagenet100 (goal: at most 0.5)": 100 * (scores["imagenet100"] - scores["quick"]),
    }


def compare_embedding(_: Features, rounds: int) -> dict[str, Any]:
    """From files to vectors, each side as its users write it; and the encoder alone, on images already in memory."""
    with tempfile.TemporaryDirectory() as folder:
        files = drawn_jpegs(Path(folder) / "images", IMAGES)
        encoder, model, processor = both_encoders(Path(folder))
        view = View(encoder.default_layer, "mean")

        def ours() -> Tensor:
            images = open_images(Path(folder) / "images", cache="off")
            return torch.from_numpy(extract(encoder, images, [view], cache=None)[view].features_ND)

        @torch.inference_mode()
        def with_transformers() -> Tensor:
            vectors = []
            for start in range(0, len(files), CHUNK):
                pixels = processor([Image.open(file) for file in files[start : start + CHUNK]], return_tensors="pt")
                vectors.append(model(**pixels, output_hidden_states=True).hidden_states[-1].mean(dim=1))
            return torch.cat(vectors)

        images = torch.randn(CHUNK, 3, 224, 224, generator=torch.Generator().manual_seed(0))
        alone = {
            "ours": lambda: encoder.tokens(images, [view.layer])[view.layer].mean(dim=1),
            "transformers": torch.inference_mode()(
                lambda: model(images, output_hidden_states=True).hidden_states[-1].mean(dim=1)
            ),
        }
        seconds, vectors = race({"ours": ours, "transformers": with_transformers}, rounds)
        seconds_alone, _ = race(alone, rounds)
    far = (vectors["ours"] - vectors["transformers"]).norm() / vectors["transformers"].norm()
    return {
        "seconds": seconds,
        "images/s": {name: IMAGES / sorted(each)[len(each) // 2] for name, each in seconds.items()},
        "relative distance of the vectors": float(far),
        "times as fast as transformers, from files (goal 1.2)": ratio(seconds, "ours", "transformers")[0],
        "times as fast as transformers, the encoder alone": ratio(seconds_alone, "ours", "transformers")[0],
    }


def drawn_jpegs(folder: Path, count: int) -> list[Path]:
    """Drawn shapes, enlarged to 256 x 256: both sides cut 224 x 224 from the centre, and neither has to resize."""
    folder.mkdir()
    drawn, files = open_images(f"shapes:{count}", cache="off"), []
    for index in range(count):
        files.append(folder / f"{index:06d}.jpg")
        pixels = drawn.get([index]).pixels[0].transpose(1, 2, 0)
        Image.fromarray(pixels).resize((256, 256), Image.Resampling.BICUBIC).save(files[-1], quality=90)
    return files


def both_encoders(folder: Path) -> tuple[Encoder, Any, Any]:
    """A faded encoder with drawn weights, and the same, exported, as transformers loads it."""
    from transformers import AutoImageProcessor, AutoModel

    generator = torch.Generator().manual_seed(0)
    vit = ViT(mae_preset("tiny", alpha_min=0.7).encoder, generator)
    for branch in vit.branches():  # they start at zero, and would be left out of the comparison
        torch.nn.init.xavier_uniform_(branch.output.weight, generator=generator)
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    described = {"kind": "vit", "model": to_dict(vit.config), "mean": mean, "std": std}
    save_weights(folder / "encoder", vit.state_dict(), described, vit.shortcut_record)
    export_encoder(folder / "encoder", "hf", folder / "hf")
    model = AutoModel.from_pretrained(folder / "hf").eval()
    return load(folder / "encoder"), model, AutoImageProcessor.from_pretrained(folder / "hf")


COMPARISONS: dict[str, Callable[[Features, int], dict[str, Any]]] = {
    "knn": compare_knn,
    "probe": compare_probes,
    "embedding": compare_embedding,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--cpu", action="store_true")
    parser.add_argument("--features", type=Path)
    parser.add_argument("--only", nargs="+", choices=COMPARISONS, default=list(COMPARISONS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    CLOCK["used"] = time.process_time if options.cpu else time.perf_counter
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
