"""How many directions do the features use? The three ranks, each under its own name."""

from __future__ import annotations

from typing import Any

import numpy as np

from echoless.config.metrics import Metric
from echoless.evaluation.extract import FeatureSet
from echoless.evaluation.outcome_cache import remembered
from echoless.measures import rank_centered, rank_paper, rankme


def ranks(tokens: FeatureSet, pooled: FeatureSet, **protocol: Any) -> list[Metric]:
    """rank_paper of the class tokens; the column-centred entropy and RankMe of the pooled features."""

    def measure() -> np.ndarray:
        return np.array([rank_paper(tokens.features_ND), rank_centered(pooled.features_ND), rankme(pooled.features_ND)])

    n, layer = len(pooled.features_ND), pooled.view.layer
    names = {"rank_paper": tokens, "rank_centered": pooled, "rankme": pooled}
    values = remembered([tokens, pooled], "ranks", (len(names),), measure)
    return [
        Metric(metric=name, value=float(value), n=n, protocol={**protocol, "layer": layer, "pooling": of.view.pooling})
        for (name, of), value in zip(names.items(), values)
    ]
