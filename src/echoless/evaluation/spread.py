"""How many directions do the features use? The three ranks, each under its own name."""

from __future__ import annotations

from typing import Any

from echoless.evaluation.extract import FeatureSet
from echoless.measures import rank_centered, rank_paper, rankme
from echoless.reports.record import Metric


def ranks(tokens: FeatureSet, pooled: FeatureSet, **protocol: Any) -> list[Metric]:
    """rank_paper of the class tokens; the column-centred entropy and RankMe of the pooled features."""
    n, layer = len(pooled.features_ND), pooled.view.layer
    rows = [
        ("rank_paper", rank_paper(tokens.features_ND), tokens.view.pooling),
        ("rank_centered", rank_centered(pooled.features_ND), pooled.view.pooling),
        ("rankme", rankme(pooled.features_ND), pooled.view.pooling),
    ]
    return [
        Metric(metric=name, value=value, n=n, protocol={**protocol, "layer": layer, "pooling": pooling})
        for name, value, pooling in rows
    ]
