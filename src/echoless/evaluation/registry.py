"""How is each measurement of `evaluate --metrics` made? What it yields stands in `config/metrics.py`.

A new one touches three files: its own, `config/metrics.py` (METRICS and YIELDS), and the table here.
"""

from __future__ import annotations

from echoless.evaluation import classify, dense, neighbours, pictures, ranks, samples
from echoless.evaluation.context import Evaluation, FeatureSource, Measurement

MEASUREMENTS: dict[str, Measurement] = {
    "knn": Measurement(measure=classify.measure_knn, check=classify.check_knn, needs_labels=True, snapshots=True),
    "linear": Measurement(
        measure=classify.measure_linear, check=classify.check_linear, needs_labels=True, snapshots=True
    ),
    "rank": Measurement(measure=ranks.measure_ranks, snapshots=True),
    "spectral": Measurement(measure=pictures.measure_spectral, check=pictures.check_spectral),
    "tokencut": Measurement(measure=dense.measure_tokencut, check=dense.check_tokencut, snapshots=True),
    "segprobe": Measurement(measure=dense.measure_segprobe, check=dense.check_segprobe, snapshots=True),
    "tsne": Measurement(measure=pictures.draw_tsne, baselines=False),
    "neighbours": Measurement(measure=neighbours.draw_neighbours, check=neighbours.check_neighbours),
    "reconstruct": Measurement(measure=pictures.draw_reconstructions, baselines=False),
    "frechet": Measurement(measure=samples.measure_frechet, check=samples.check_samples, baselines=False),
    "precision": Measurement(measure=samples.measure_precision, check=samples.check_samples, baselines=False),
    "inception-score": Measurement(measure=samples.measure_inception, check=samples.check_samples, baselines=False),
}

__all__ = ["MEASUREMENTS", "Evaluation", "FeatureSource", "Measurement"]
