"""What does a metric work with? The contract between `evaluate` and the functions in the table `METRICS`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from echoless.config.metrics import Metric
from echoless.config.options import EvaluateOptions
from echoless.data import Images
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import FeatureSet, View, extract
from echoless.runtime import Progress

Say = Callable[[str], None]
Views = dict[View, FeatureSet]


@dataclass(frozen=True)
class Bench:
    """What one evaluation has on its table; `run` is None where the encoder is not one of our runs."""

    encoder: Encoder
    train: Images
    test: Images | None
    options: EvaluateOptions
    run: Path | None
    cache: Path | None
    say: Say
    protocol: dict[str, Any] = field(default_factory=dict)  # what every number of the network must say

    @property
    def judged(self) -> Images:
        return self.test or self.train

    @property
    def labelled(self) -> bool:
        return self.train.labels is not None and self.judged.labels is not None

    @property
    def figures(self) -> Path:
        """Where pictures go."""
        return self.run / "figures" if self.run else Path.cwd() / "echoless-figures"

    def features(self, encoder: Encoder, views: list[View], images: Images, what: str) -> Views:
        with Progress(f"features of {what}", images.usable, "images") as progress:
            return extract(encoder, images, views, cache=self.cache, report=lambda done, total: progress.show(done))


@dataclass(frozen=True)
class Subject:
    """One row of the table: an encoder, seen at one layer and pooling. Its features are computed when first asked for.

    `name` is "trained", "raw pixels" or "untrained"; `protocol` what else every number of this row must say.
    """

    bench: Bench
    name: str
    encoder: Encoder
    protocol: dict[str, Any] = field(default_factory=dict)

    @property
    def described(self) -> dict[str, Any]:
        # Only a network that is shown noise was looked at in a chosen cell; pixels have none.
        shown = {} if self.encoder.noise is None else {**self.bench.protocol, "noise": self.encoder.noise}
        if self.encoder.checkpoint is not None:  # the run has not ended: another number than its result
            shown["checkpoint"] = self.encoder.checkpoint
        return {"features": self.name, **shown, **self.protocol}

    @property
    def view(self) -> View:
        """The layer asked for, or the last; the pooling asked for, or the mean where there is no class token."""
        named = [name for name in self.bench.options.layers if name not in ("last", "all")]
        one = len(self.bench.options.layers) == 1 and named and named[0] in self.encoder.layers
        pooling = self.bench.options.pooling
        return View(
            named[0] if one else self.encoder.default_layer,
            pooling if self.encoder.has_class_token or pooling != "cls" else "mean",
        )

    @property
    def token_view(self) -> View:
        """The class tokens that the paper's rank is about; the mean where there are none."""
        return View(self.view.layer, "cls" if self.encoder.has_class_token else "mean")

    @cached_property
    def train(self) -> Views:
        return self._features(self.bench.train, "train")

    @cached_property
    def test(self) -> Views | None:
        return None if self.bench.test is None else self._features(self.bench.test, "test")

    @property
    def judged(self) -> Views:
        return self.test or self.train

    def _features(self, images: Images, part: str) -> Views:
        views = list(dict.fromkeys([self.view, self.token_view]))
        return self.bench.features(self.encoder, views, images, f"{self.name}, {part}")


def _nothing(bench: Bench) -> None:
    """Nothing to refuse."""


@dataclass(frozen=True, kw_only=True)
class Measure:
    """An entry of `METRICS`. `check` refuses bad options in one sentence, before any feature is computed."""

    of: Callable[[Subject], list[Metric]]
    check: Callable[[Bench], None] = _nothing
    needs_labels: bool = False
    baselines: bool = True  # raw pixels and the untrained encoder are measured too
    snapshots: bool = False  # --snapshots measures it at every snapshot
