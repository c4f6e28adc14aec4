"""How good are generated images? Frechet distance, precision and recall, Inception Score, through a named extractor.

The reference is --reference, or else --test, or --train where there is no test set. Where RUN is no diffusion model, it
is the extractor itself: two sets of images are compared with no run at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch

from echoless.config.checks import require_whole
from echoless.config.metrics import Metric
from echoless.config.options import SampleOptions
from echoless.config.options.evaluate import INCEPTION
from echoless.data import Images
from echoless.data.provenance import short_name
from echoless.data.reading import read_images
from echoless.data.resizing import DIFFUSION
from echoless.data.subset import draw_protocol, draw_rows
from echoless.errors import ConfigError, DataError
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.draw import draw_into
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import FeatureSet, View, check_channels
from echoless.evaluation.extractor import PROBABILITIES, open_extractor
from echoless.evaluation.reference import published_moments, reference_moments, require_statistics
from echoless.measures import Moments, frechet_distance, frechet_interval, inception_score, moments, precision_recall
from echoless.randomness import generator_for
from echoless.runs.open import fingerprint_of
from echoless.runtime import choose_device
from echoless.runtime.sharing import rank_and_world
from echoless.storage import read_json_object
from echoless.storage.atomic import explained

NEIGHBOURS = 3  # as published
MANIFOLD = 10_000  # images of each side that precision and recall look at
BOOTSTRAPPED = 512  # dimensions up to which resampling takes seconds
FEWEST = 50


def check_samples(evaluation: Evaluation) -> None:
    """Refuse early what cannot be measured."""
    if evaluation.options.extractor is None and evaluation.encoder.noise is not None:
        raise ConfigError(
            "frechet, precision and inception-score need the network whose features are compared; give "
            "--extractor: a run, a transformers folder, timm:NAME, or inception:FILE"
        )
    if evaluation.options.samples is None and (evaluation.options.draw is None or evaluation.run is None):
        raise ConfigError(
            "there are no samples to measure; give --samples DIR, as `echoless sample` writes it, or, for a diffusion "
            "run, --draw N"
        )
    if evaluation.options.samples is not None and evaluation.options.draw is not None:
        raise ConfigError(
            f"samples is {evaluation.options.samples!r} and draw is {evaluation.options.draw}; give one of the two"
        )
    if evaluation.options.draw is not None and rank_and_world()[1] > 1:
        raise ConfigError(
            f"draw is {evaluation.options.draw}, with several processes; draw them before, with `echoless sample`, and "
            "give --samples DIR"
        )
    if evaluation.options.draw is not None:
        require_whole("draw", evaluation.options.draw, FEWEST)
    _check_reference(evaluation)
    wants_classes = "inception-score" in evaluation.options.metrics
    if wants_classes and not (evaluation.options.extractor or "").startswith(INCEPTION):
        raise ConfigError("inception-score needs the classes of Inception; give --extractor inception:FILE")


def _check_reference(evaluation: Evaluation) -> None:
    given = evaluation.options.reference
    if given is None or given == "train":
        return
    if given == "test":
        if evaluation.test is None:
            raise ConfigError("reference is 'test', which needs --test")
        return
    file = require_statistics(given)
    if "precision" in evaluation.options.metrics:
        raise ConfigError(f"precision compares images, and reference {given!r} holds statistics; give train or test")
    published_moments(file)


def measure_frechet(source: FeatureSource) -> list[Metric]:
    """The distance with a bootstrap interval where that takes seconds, and the same for real images, the floor."""
    comparison = _comparison(source.evaluation)
    reference, found = comparison.reference(), comparison.generated()
    metrics = [_distance(comparison, found, reference, comparison.protocol)]
    if (other := comparison.other_images) is not None:
        name, images = other
        floor = _some(comparison.features(images, name), len(found.features_ND), source.evaluation.options.seed)
        protocol = {**comparison.protocol, "features": "real images", "samples": f"images of --{name}, the floor"}
        protocol |= draw_protocol(images, len(found.features_ND))
        metrics.append(_distance(comparison, floor, reference, protocol))
    return metrics


def measure_precision(source: FeatureSource) -> list[Metric]:
    comparison = _comparison(source.evaluation)
    seed = source.evaluation.options.seed
    reference = comparison.features(comparison.reference_images, "reference")
    real, generated = (_some(each, MANIFOLD, seed).features_ND for each in (reference, comparison.generated()))
    both = precision_recall(real, generated, k=NEIGHBOURS)
    protocol = {**comparison.protocol, "k": NEIGHBOURS, "reference_n": len(real)}
    protocol |= draw_protocol(comparison.reference_images, MANIFOLD)
    return [
        Metric(metric=name, value=value, n=len(generated), protocol=protocol)
        for name, value in zip(("precision", "recall"), both)
    ]


def _some(features: FeatureSet, count: int, seed: int) -> FeatureSet:
    """`count` rows of a set, drawn with all classes in their shares."""
    rows = draw_rows(len(features.ids_N), count, features.labels_N, seed=seed).sort().values
    labels = None if features.labels_N is None else features.labels_N[rows]
    return FeatureSet(features.view, features.features_ND[rows.numpy()], features.ids_N[rows], labels)


def measure_inception(source: FeatureSource) -> list[Metric]:
    comparison = _comparison(source.evaluation)
    view = View(PROBABILITIES)
    found = source.evaluation.features(comparison.extractor, [view], comparison.images, "the samples")[view]
    value, spread = inception_score(torch.from_numpy(found.features_ND[:]))
    protocol = {**comparison.protocol, "layer": view.layer, "splits": 10, "spread_over_splits": spread}
    return [Metric(metric="inception-score", value=value, n=len(found.features_ND), protocol=protocol)]


@dataclass(frozen=True)
class SampleComparison:
    """Samples, the extractor whose features compare them with images, and the protocol of every such number."""

    evaluation: Evaluation
    extractor: Encoder
    images: Images
    drawn: dict[str, Any]  # what is known of how the samples were drawn

    @property
    def view(self) -> View:
        return View(self.extractor.default_layer)

    @property
    def protocol(self) -> dict[str, Any]:
        options = self.evaluation.options
        return {
            "features": "trained",
            # Without the detour over the run that a sweep makes: numbers of its runs must be comparable.
            "extractor": os.path.normpath(options.extractor) if options.extractor else self.extractor.name,
            "extractor_fingerprint": self.extractor.fingerprint[:16],
            "layer": self.view.layer,
            "samples": self._samples,
            **self.drawn,
            **self._reference_protocol,
        }

    @property
    def _reference_protocol(self) -> dict[str, Any]:
        if self.published is not None:
            words = [repr(self.published.mean_D.tolist()), repr(self.published.covariance_DD.diagonal().tolist())]
            fingerprint = fingerprint_of({}, words)[:16]
            return {"reference": short_name(str(self.published_file)), "reference_fingerprint": fingerprint}
        options, images = self.evaluation.options, self.reference_images
        given = options.test if images is self.evaluation.test else options.train
        return {
            "reference": short_name(str(given or "the images of the run")),
            "reference_fingerprint": images.fingerprint[:16],
            "reference_n": images.usable,
        }

    @property
    def published_file(self) -> Path | None:
        """Where --reference is a file of statistics."""
        given = self.evaluation.options.reference
        return None if given in (None, "train", "test") else Path(str(given))

    @cached_property
    def published(self) -> Moments | None:
        return None if self.published_file is None else published_moments(self.published_file)

    @property
    def reference_images(self) -> Images:
        evaluation = self.evaluation
        return evaluation.train if evaluation.options.reference == "train" else evaluation.test_or_train

    @property
    def other_images(self) -> tuple[str, Images] | None:
        """The real images that are not the reference, with the name of their option: how near real images come."""
        train, test = self.evaluation.train, self.evaluation.test
        if test is None or self.published_file is not None:
            return None
        return ("test", test) if self.reference_images is train else ("train", train)

    @property
    def _samples(self) -> str:
        """Those of a run by their place in it, so that the numbers of several runs can stand side by side."""
        options, run = self.evaluation.options, self.evaluation.run
        if options.samples is None:
            return f"drawn: {options.draw}, {options.steps} steps"
        place = Path(options.samples).absolute()
        if run is None or not place.is_relative_to(run.absolute()):
            return str(options.samples)
        return f"RUN/{place.relative_to(run.absolute())}"

    def features(self, images: Images, what: str) -> FeatureSet:
        return self.evaluation.features(self.extractor, [self.view], images, what)[self.view]

    def generated(self) -> FeatureSet:
        found = self.features(self.images, "the samples")
        if len(found.features_ND) < FEWEST:
            raise DataError(f"there are {len(found.features_ND)} samples; allowed: {FEWEST} or more")
        return found

    def reference(self) -> Moments:
        if self.published is not None:
            return self.published
        images, keep = self.reference_images, self.evaluation.cache is not None
        features = partial(self.features, images, "the reference")
        return reference_moments(self.extractor, images, self.view, features, keep=keep)


def _distance(comparison: SampleComparison, found: FeatureSet, reference: Moments, protocol: dict[str, Any]) -> Metric:
    features, seed = found.features_ND, comparison.evaluation.options.seed
    interval = None
    if features.shape[1] <= BOOTSTRAPPED:
        value, *ends = frechet_interval(features, reference, generator=generator_for(seed, "probe", 0))
        interval, protocol = (ends[0], ends[1]), {**protocol, "seed": seed}
    else:
        value = frechet_distance(reference, moments(features))
    return Metric(metric="frechet", value=value, n=len(features), interval=interval, protocol=protocol)


def _comparison(evaluation: Evaluation) -> SampleComparison:
    place = _place(evaluation)
    images = read_images(str(place), None, needed=True)  # there is no option to ignore their labels
    size = (images.shape.height, images.shape.width)
    given, device = evaluation.options.extractor, str(choose_device(evaluation.options.device))
    extractor = evaluation.encoder if given is None else open_extractor(given, size, device)
    # Samples are whole images; those that they are compared with are cropped as the training set of a diffusion model.
    extractor = replace(extractor, framing=DIFFUSION)
    comparison = SampleComparison(evaluation, extractor, images, _drawn(place))
    for compared in (images, comparison.reference_images):
        check_channels(extractor, compared)
    return comparison


def _drawn(place: Path) -> dict[str, Any]:
    """How `sample` drew them, where it did."""
    said = (place if place.is_dir() else place.parent) / "samples.json"
    known = read_json_object(said) if said.is_file() else {}
    return {name: known[name] for name in ("sampler", "steps", "guidance", "clip", "step") if name in known}


def _place(evaluation: Evaluation) -> Path:
    """Where the samples are, drawn first if need be. A folder that `sample` filled holds all of them in one file."""
    options = evaluation.options
    if options.samples is not None:
        folder = Path(options.samples)
    else:
        assert evaluation.run is not None and options.draw is not None
        folder = evaluation.run / "samples" / f"n{options.draw}-steps{options.steps}-seed{options.seed}-clip"
        with explained(folder):
            folder.parent.mkdir(exist_ok=True)
        wanted = SampleOptions(
            evaluation.run,
            out=folder,
            n=options.draw,
            steps=options.steps,
            seed=options.seed,
            latent=options.latent,
            device=options.device,
            resume=True,
        )
        draw_into(wanted)
    archive = folder / "samples.npz"
    return archive if archive.is_file() else folder
