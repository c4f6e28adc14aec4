"""What can `evaluate` measure? One line here, one file beside it, and the name in `EvaluateOptions.metrics`."""

from __future__ import annotations

from echoless.evaluation import dense_metrics as dense
from echoless.evaluation import pictures, samples
from echoless.evaluation import pooled as numbers
from echoless.evaluation.bench import Bench, Measure, Subject

METRICS = {
    "knn": Measure(of=numbers.knn, check=numbers.check_knn, needs_labels=True, snapshots=True),
    "linear": Measure(of=numbers.linear, check=numbers.check_linear, needs_labels=True, snapshots=True),
    "rank": Measure(of=numbers.rank, snapshots=True),
    "spectral": Measure(of=pictures.spectral),
    "tokencut": Measure(of=dense.tokencut, check=dense.check, snapshots=True),
    "segprobe": Measure(of=dense.segprobe, check=dense.check, needs_labels=True, snapshots=True),
    "tsne": Measure(of=pictures.tsne, baselines=False),
    "reconstruct": Measure(of=pictures.reconstructions, baselines=False),
    "frechet": Measure(of=samples.frechet, check=samples.check_samples, baselines=False),
    "precision": Measure(of=samples.precision, check=samples.check_samples, baselines=False),
    "inception-score": Measure(of=samples.inception, check=samples.check_samples, baselines=False),
}

__all__ = ["METRICS", "Bench", "Measure", "Subject"]
