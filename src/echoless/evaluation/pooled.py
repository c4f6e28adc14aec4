"""How good are pooled features? kNN, linear probes and ranks of one encoder."""

from __future__ import annotations

from echoless.config.checks import require, require_whole
from echoless.config.metrics import Metric
from echoless.evaluation import classify
from echoless.evaluation.augmented import mae_linear
from echoless.evaluation.bench import Bench, Subject
from echoless.evaluation.ranks import ranks
from echoless.runtime import Progress


def check_knn(bench: Bench) -> None:
    for k in bench.options.k:
        require_whole("k", k, 1)


def knn(subject: Subject) -> list[Metric]:
    options, view = subject.bench.options, subject.view
    test = subject.test[view] if subject.test else None
    return classify.knn(subject.train[view], test, ks=options.k, seed=options.seed, **subject.described)


def check_linear(bench: Bench) -> None:
    if "mae" in bench.options.probe:
        allowed = "give --test, because it retrains on augmented images"
        require(bench.test is not None, "probe", "mae without --test", allowed)


def linear(subject: Subject) -> list[Metric]:
    options, view = subject.bench.options, subject.view
    test = subject.test[view] if subject.test else None
    metrics = [
        classify.linear(subject.train[view], test, probe=probe, seed=options.seed, **subject.described)
        for probe in options.probe
        if probe != "mae"
    ]
    return [*metrics, _mae_probe(subject)] if "mae" in options.probe and subject.name == "trained" else metrics


def _mae_probe(subject: Subject) -> Metric:
    assert subject.test is not None
    with Progress("mae probe", 90, "epochs") as progress:
        return mae_linear(
            subject.encoder,
            subject.bench.train,
            subject.test[subject.view],
            view=subject.view,
            seed=subject.bench.options.seed,
            report=lambda done, total: progress.show(done),
            **subject.described,
        )


def rank(subject: Subject) -> list[Metric]:
    return ranks(subject.judged[subject.token_view], subject.judged[subject.view], **subject.described)
