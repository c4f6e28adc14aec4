"""How many directions do the features use? The three ranks, each under its own name."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from echoless.config.metrics import Metric
from echoless.config.words import collapsed
from echoless.evaluation.context import FeatureSource
from echoless.evaluation.extract import FeatureSet
from echoless.evaluation.outcome_cache import cached_outcome
from echoless.measures import rank_centered, rank_paper, rankme

LOOKED_AT = 4096  # rows that tell whether features have collapsed
ALIKE = 0.95  # mean cosine of two images above which the cosines of neighbours need a scale


def measure_ranks(source: FeatureSource) -> list[Metric]:
    features = source.test_or_train
    return ranks(features[source.token_view], features[source.view], **source.protocol)


def ranks(tokens: FeatureSet, pooled: FeatureSet, **protocol: Any) -> list[Metric]:
    """rank_paper of the class tokens; the column-centred entropy and RankMe of the pooled features."""

    def measure() -> np.ndarray:
        return np.array([rank_paper(tokens.features_ND), rank_centered(pooled.features_ND), rankme(pooled.features_ND)])

    values = cached_outcome([tokens, pooled], "ranks", (3,), measure, torch.float64)

    def metric(name: str, value: float, features: FeatureSet) -> Metric:
        view = {"layer": pooled.view.layer, "pooling": features.view.pooling}
        return Metric(metric=name, value=float(value), n=len(pooled.features_ND), protocol={**protocol, **view})

    return [
        metric("rank_paper", values[0], tokens),
        metric("rank_centered", values[1], pooled),
        metric("rankme", values[2], pooled),
    ]


def collapse_in_words(features_ND: np.ndarray, checkpoint: int | None = None) -> str:
    """A warning in the words of `evaluate` where nearly all images look the same; else nothing.

    checkpoint: the step of a run that has not ended.
    """
    if not len(features_ND):
        return ""
    protocol = {} if checkpoint is None else {"checkpoint": checkpoint}
    words = collapsed(Metric(metric="rankme", value=rankme(features_ND), n=len(features_ND), protocol=protocol))
    return "" if words is None else f"warning: {words.verdict} Their neighbours mean little."


def likeness_in_words(features_ND: np.ndarray) -> str:
    """A scale for similarities where any two images have a large one; else nothing.

    Features with a large part in common are such: a similarity of 0.99 then says little by itself.
    """
    count = len(features_ND)
    lengths_N1 = np.linalg.norm(features_ND, axis=1, keepdims=True)
    if count < 2 or not lengths_N1.all():
        return ""
    total_D = (features_ND / lengths_N1).sum(axis=0, dtype=np.float64)
    mean = (float(total_D @ total_D) - count) / (count * (count - 1))
    if mean < ALIKE:
        return ""
    return f"two images of the table have a similarity of {mean:.4f} on average: read the similarities against that"
