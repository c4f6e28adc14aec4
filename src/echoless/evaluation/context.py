"""What does a measurement work with? One evaluation, and the features of one of its encoders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from echoless.config.best_layer import OF_THE_CHOICE
from echoless.config.metrics import Metric
from echoless.config.options import EvaluateOptions
from echoless.data import Images
from echoless.data.resizing import LARGE, Framing
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import WORKERS, FeatureSet, View, extract
from echoless.evaluation.stored_patches import Stored
from echoless.runtime import Progress
from echoless.storage.atomic import can_write

Say = Callable[[str], None]
Views = dict[View, FeatureSet]


@dataclass(frozen=True)
class Evaluation:
    """An encoder, the images and the options; `run` is None where the encoder is not one of our runs."""

    encoder: Encoder
    train: Images
    test: Images | None
    options: EvaluateOptions
    run: Path | None
    cache: Path | None
    say: Say
    sets: dict[str, Any] = field(default_factory=dict)  # on which images: part of the protocol of every number
    label_protocol: dict[str, Any] = field(default_factory=dict)  # by which labels: of numbers that depend on them
    originals: Callable[[], Images] | None = None  # --train at full size, for probes that learn from random crops
    noise_protocol: dict[str, Any] = field(default_factory=dict)  # how the noise level of a diffusion model was chosen
    closing: list[str] = field(default_factory=list)  # sentences for the end of everything that is printed
    stored: Stored = ()  # patch features of --train and --test that are known already

    @property
    def test_or_train(self) -> Images:
        """The images that are predicted: those of --test, or without it those of --train, in folds."""
        return self.test or self.train

    @property
    def labelled(self) -> bool:
        return self.train.labels is not None and self.test_or_train.labels is not None

    @property
    def home(self) -> Path | None:
        """The run folder where it may be written into: a run of somebody else is measured, and nothing is kept."""
        return self.run if self.run is not None and can_write(self.run) else None

    @property
    def pooling(self) -> str:
        """The pooling asked for, or the encoder's own."""
        return self.options.pooling or self.encoder.default_pooling

    def view_of(self, framing: Framing) -> dict[str, Any]:
        """What the protocol says of the part of an image that is seen: nothing where small images are used whole."""
        if not framing.every and min(self.test_or_train.typical_size) <= LARGE:
            return {}
        whole = self.test_or_train.used_whole
        return {"view": (replace(framing, share=1.0) if whole else framing).describe(self.encoder.image_size)}

    @property
    def figures(self) -> Path:
        """Where pictures go."""
        return self.home / "figures" if self.home else Path.cwd() / "echoless-figures"

    def with_sets(self, metrics: Sequence[Metric]) -> list[Metric]:
        """The same numbers, which now say on which images and by which labels they were measured.

        Those of scans keep no answers, but for the few that say which layer is the best.
        """
        named = [replace(metric, protocol=metric.protocol | self.sets | self._labels_of(metric)) for metric in metrics]
        return [m if _keeps_answers(m) else replace(m, right="", groups=None) for m in named]

    def _labels_of(self, metric: Metric) -> dict[str, Any]:
        if not metric.info.labelled:
            return {}
        unused = () if metric.info.has_chance else ("chance",)
        return {name: value for name, value in self.label_protocol.items() if name not in unused}

    def features(self, encoder: Encoder, views: list[View], images: Images, what: str) -> Views:
        with Progress(f"features of {what}", images.usable, "images") as progress:

            def show(done: int, total: int) -> None:
                progress.show(done)

            workers = WORKERS if self.options.workers is None else self.options.workers
            return extract(encoder, images, views, cache=self.cache, report=show, workers=workers)


def _keeps_answers(metric: Metric) -> bool:
    return not {"scan", "step"} & set(metric.protocol) or metric.protocol.get("scan") in OF_THE_CHOICE


@dataclass(frozen=True)
class FeatureSource:
    """An encoder at one layer and pooling: a row of the table. Its features are computed when first asked for.

    `name` is "trained", "raw pixels" or "untrained"; `extra` is what else the protocol of its numbers says.
    """

    evaluation: Evaluation
    name: str
    encoder: Encoder
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def protocol(self) -> dict[str, Any]:
        """What every number of this source says of itself."""
        # Noise levels belong to diffusion models; raw pixels have none.
        noise = {} if self.encoder.noise is None else {**self.evaluation.noise_protocol, "noise": self.encoder.noise}
        # The run has not ended: another number than its result.
        early = {} if self.encoder.checkpoint is None else {"checkpoint": self.encoder.checkpoint}
        view = self.evaluation.view_of(self.encoder.framing)
        return {"features": self.name, **noise, **early, **view, **self.extra}

    @property
    def dense_protocol(self) -> dict[str, Any]:
        """The same for measurements of whole images, which may read stored patches."""
        protocol = self.protocol | self.evaluation.view_of(self.encoder.dense_framing)
        for file in self.evaluation.stored:
            if file.about.get("encoder") == self.encoder.fingerprint:
                protocol |= file.protocol
        return protocol

    @property
    def view(self) -> View:
        """The layer asked for, or the last; the pooling asked for, or the mean where there is no class token."""
        options = self.evaluation.options
        named = [name for name in options.layers if name not in ("last", "all")]
        one = len(options.layers) == 1 and named and named[0] in self.encoder.layers
        pooling = self.evaluation.pooling
        return View(
            named[0] if one else self.encoder.default_layer,
            pooling if self.encoder.has_class_token or pooling != "cls" else "mean",
        )

    def probe_view(self, probe: str) -> View:
        """What a linear probe reads. The published ones say it themselves; an explicit --layers and --pooling count.

        imagenet100: the mean of all tokens. mae: the class token after the final norm.
        """
        options, own = self.evaluation.options, self.view
        if probe not in ("imagenet100", "mae"):
            return own
        pooling = "cls" if probe == "mae" and self.encoder.has_class_token else "mean"
        layer = self.encoder.normalised_layer if probe == "mae" else self.encoder.default_layer
        return View(
            own.layer if options.layers != ("last",) else layer,
            own.pooling if options.pooling is not None else pooling,
        )

    @property
    def token_view(self) -> View:
        """The class tokens, of which the paper's rank is taken; the mean where there are none."""
        return View(self.view.layer, "cls" if self.encoder.has_class_token else "mean")

    @cached_property
    def train(self) -> Views:
        return self._features(self.evaluation.train, "train")

    @cached_property
    def test(self) -> Views | None:
        return None if self.evaluation.test is None else self._features(self.evaluation.test, "test")

    @property
    def test_or_train(self) -> Views:
        return self.test or self.train

    def _features(self, images: Images, part: str) -> Views:
        probed = [self.probe_view(probe) for probe in self.evaluation.options.probe]
        views = list(dict.fromkeys([self.view, self.token_view, *probed]))
        return self.evaluation.features(self.encoder, views, images, f"{self.name}, {part}")


def _accept(evaluation: Evaluation) -> None:
    """Nothing to refuse."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """How one name of `--metrics` is measured. `check` refuses bad options before any feature is computed."""

    measure: Callable[[FeatureSource], list[Metric]]
    check: Callable[[Evaluation], None] = _accept
    needs_labels: bool = False
    baselines: bool = True  # raw pixels and the untrained encoder are measured too
    snapshots: bool = False  # --snapshots measures it at every snapshot
