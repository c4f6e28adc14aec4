"""Do runs of lower rank have better features? Rank against accuracy across runs, at each snapshot.

Figure 5c of an earlier version of arXiv:2404.10947: Pearson's correlation, one point per run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from echoless.config.checks import require
from echoless.config.metrics import Metric
from echoless.errors import RunError
from echoless.evaluation.context import Evaluation
from echoless.evaluation.extract import check_channels
from echoless.evaluation.frozen import load
from echoless.evaluation.snapshots import check_snapshots, measure_snapshots
from echoless.measures import pearson, pearson_interval
from echoless.runs import RunFolder
from echoless.runtime import choose_device

FEWEST_RUNS = 3  # two points always lie on a line
ACCURACIES = ("knn", "linear")


def open_others(evaluation: Evaluation, measured: Sequence[str]) -> list[Evaluation]:
    """The runs of --against, on the same images. Refuses what cannot be correlated, before any work."""
    against = tuple(map(str, evaluation.options.against))
    if not against:
        return []
    allowed = f"{FEWEST_RUNS - 1} or more other runs, because a correlation needs {FEWEST_RUNS} points"
    others = {Path(source).resolve() for source in against} - {(evaluation.run or Path()).resolve()}
    require(len(others) >= FEWEST_RUNS - 1, "against", " ".join(against), allowed)
    require(evaluation.options.snapshots, "against", " ".join(against), "with --snapshots, at which runs are compared")
    good = "rank" in measured and bool(set(measured) & set(ACCURACIES))
    require(good, "metrics", " ".join(measured), "with --against, rank and one of knn and linear, on labelled images")
    evaluations = [_open(evaluation, source) for source in sorted(others)]
    if not set.intersection(*(_steps(each) for each in (evaluation, *evaluations))):
        raise RunError("the runs of --against have no snapshot at the same step; train with one --snapshot-every")
    return evaluations


def correlate_runs(own: Sequence[Metric], others: Sequence[Evaluation], names: Sequence[str]) -> list[Metric]:
    """Measures the snapshots of the other runs too, each into its own results.json, and correlates."""
    runs = [list(own)]
    for other in others:
        runs.append(measure_snapshots(other, names))
        if other.home is not None:
            RunFolder(other.home).add_results([metric.to_json() for metric in other.with_sets(runs[-1])])
    accuracies = [metric for metric in own if metric.metric in ACCURACIES]
    metrics = [_correlation(accuracy, runs) for accuracy in accuracies]
    return [metric for metric in metrics if metric is not None]


def _correlation(accuracy: Metric, runs: Sequence[Sequence[Metric]]) -> Metric | None:
    """Of the rank with this accuracy at its step; None where a run has no such snapshot, or all values are equal."""
    step = accuracy.protocol["step"]
    pairs = [(_find(run, "rank_paper", step), _same(run, accuracy)) for run in runs]
    points = [(rank.value, other.value) for rank, other in pairs if rank is not None and other is not None]
    ranks, values = [rank for rank, _ in points], [value for _, value in points]
    if len(points) < len(runs) or len(set(ranks)) == 1 or len(set(values)) == 1:
        return None
    r = pearson(ranks, values)
    between = {"between": f"rank_paper and {accuracy.metric}", "interval": "Fisher z, over runs"}
    protocol = {**accuracy.protocol, **between}
    return Metric(
        metric="pearson", value=r, n=len(points), interval=pearson_interval(r, len(points)), protocol=protocol
    )


def _find(metrics: Sequence[Metric], name: str, step: int) -> Metric | None:
    return next((metric for metric in metrics if metric.metric == name and metric.protocol.get("step") == step), None)


def _same(metrics: Sequence[Metric], wanted: Metric) -> Metric | None:
    """The same number of another run; layers may differ in name where depths do."""

    def asked(metric: Metric) -> dict[str, object]:
        return {key: value for key, value in metric.protocol.items() if key != "layer"}

    return next((m for m in metrics if m.metric == wanted.metric and asked(m) == asked(wanted)), None)


def _open(evaluation: Evaluation, run: Path) -> Evaluation:
    if not (run / "checkpoints").is_dir():
        raise RunError(f"{run} is not a run; --against needs runs with snapshots")
    encoder = load(run, device=str(choose_device(evaluation.options.device)))
    for images in (evaluation.train, evaluation.test_or_train):
        check_channels(encoder, images)
    other = replace(evaluation, encoder=encoder, run=run, cache=run / "features" if evaluation.options.cache else None)
    check_snapshots(other)
    return other


def _steps(evaluation: Evaluation) -> set[str]:
    assert evaluation.run is not None
    return {folder.name for folder in RunFolder(evaluation.run).snapshot_folders()}
