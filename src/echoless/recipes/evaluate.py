"""How does `evaluate` go from a run to a table of numbers with protocols?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.options import EvaluateOptions
from echoless.data import Images, default_cache_dir
from echoless.errors import ConfigError, DataError, RunError
from echoless.evaluation.augmented import mae_linear
from echoless.evaluation.classify import check_labels, knn, linear
from echoless.evaluation.encoder import Encoder, from_folder, open_encoder, raw_pixels
from echoless.evaluation.extract import POOLINGS, FeatureSet, View, check_channels, extract
from echoless.evaluation.reconstruct import reconstruct
from echoless.evaluation.segment import spectral_maps
from echoless.evaluation.spread import ranks
from echoless.recipes.reading import read_images
from echoless.reports import Metric, pictures
from echoless.runs import RunFolder
from echoless.training import Progress, choose_device

NEED_LABELS = ("knn", "linear")
Say = Callable[[str], None]


@dataclass(frozen=True)
class Bench:
    """What an evaluation works with."""

    encoder: Encoder
    train: Images
    test: Images | None
    options: EvaluateOptions
    cache: Path | None
    say: Say

    @property
    def judged(self) -> Images:
        return self.test or self.train


def evaluate(source: str | Path, *, say: Say = print, **options: Any) -> list[Metric]:
    """Measure an encoder. The keywords are the fields of `EvaluateOptions`."""
    return evaluate_with(str(source), EvaluateOptions(**options), say)


def evaluate_with(source: str, options: EvaluateOptions, say: Say) -> list[Metric]:
    bench = _prepare(source, options, say)
    run = Path(source) if (Path(source) / "checkpoints").is_dir() else None
    measured = _drop_unlabelled(bench)
    metrics: list[Metric] = []
    for subject, encoder in _subjects(bench):
        metrics += _numbers(bench, encoder, measured, subject)
    if "all" in options.layers or len(options.layers) > 1:
        metrics += _scan(bench, measured)
    if options.snapshots:
        metrics += _snapshots(bench, run, measured)
    metrics += _pictures(bench, run, measured)
    if run is not None:
        RunFolder(run).add_results([metric.to_json() for metric in metrics])
    return metrics


def _prepare(source: str, options: EvaluateOptions, say: Say) -> Bench:
    device = str(choose_device(options.device))
    if min(options.k) < 1:
        raise ConfigError(f"k is {min(options.k)}; allowed: whole numbers, 1 or more")
    encoder = open_encoder(source, device=device)
    path = Path(source)
    train_path = options.train or _data_of(path)
    train = _open(train_path, options.labels, encoder)
    test = _open(options.test, options.test_labels, encoder) if options.test else None
    if test is not None:
        align_classes(train, test)
    run_cache = path / "features" if (path / "checkpoints").is_dir() else default_cache_dir() / "features"
    return Bench(encoder, train, test, options, run_cache if options.cache else None, say)


def _data_of(run: Path) -> str:
    try:
        return str(RunFolder(run).read_config()["data"]["path"])
    except Exception:
        raise RunError(f"{run} does not say which images it was trained on; give --train") from None


def _open(data: str, labels: str | None, encoder: Encoder) -> Images:
    images = read_images(data, labels)
    check_channels(encoder, images)
    return images


def align_classes(train: Images, test: Images) -> None:
    """Number the classes of the test set as the training set does, by name."""
    if train.class_names is None or test.class_names is None or test.labels is None:
        return
    present = sorted(set(test.labels.tolist()))
    unseen = [test.class_names[label] for label in present if test.class_names[label] not in train.class_names]
    if unseen:
        raise DataError(f"the test set has classes that the training set lacks: {', '.join(unseen[:10])}")
    number = [train.class_names.index(name) if name in train.class_names else -1 for name in test.class_names]
    test.labels = test.labels.new_tensor([number[label] for label in test.labels.tolist()])
    test.class_names = train.class_names


def _drop_unlabelled(bench: Bench) -> tuple[str, ...]:
    """The metrics that the data allows; says which need labels."""
    wanted = bench.options.metrics
    labelled = bench.train.labels is not None and (bench.test is None or bench.test.labels is not None)
    if labelled or not set(wanted) & set(NEED_LABELS):
        return wanted
    which, give = ("--train", "--labels") if bench.train.labels is None else ("--test", "--test-labels")
    dropped = [name for name in wanted if name in NEED_LABELS]
    bench.say(
        f"{which} has no labels, which {' and '.join(dropped)} need: measuring the others (or give {give} FILE.csv)"
    )
    return tuple(name for name in wanted if name not in NEED_LABELS)


def _subjects(bench: Bench) -> list[tuple[str, Encoder]]:
    subjects = [("trained", bench.encoder)]
    if bench.options.baselines:
        subjects.append(("raw pixels", raw_pixels(bench.encoder)))
        if bench.encoder.untrained is not None:
            subjects.append(("untrained", bench.encoder.untrained()))
    return subjects


def _features(bench: Bench, encoder: Encoder, views: list[View], images: Images, what: str) -> dict[View, FeatureSet]:
    with Progress(f"features of {what}", images.usable, "images") as progress:
        return extract(encoder, images, views, cache=bench.cache, report=lambda done, total: progress.show(done))


def _numbers(
    bench: Bench,
    encoder: Encoder,
    measured: tuple[str, ...],
    subject: str,
    view: View | None = None,
    **protocol: Any,
) -> list[Metric]:
    """kNN, probes and ranks of one encoder at one layer."""
    options = bench.options
    if not set(measured) & {"knn", "linear", "rank"}:
        return []
    pooling = options.pooling if encoder.has_class_token or options.pooling != "cls" else "mean"
    view = view or View(_layer(encoder, options), pooling)
    token_view = View(view.layer, "cls" if encoder.has_class_token else "mean")
    views = list(dict.fromkeys([view, token_view]))
    train = _features(bench, encoder, views, bench.train, f"{subject}, train")
    test = _features(bench, encoder, views, bench.test, f"{subject}, test") if bench.test is not None else None
    described = {"features": subject, **protocol}
    metrics: list[Metric] = []
    if set(measured) & set(NEED_LABELS):
        check_labels(train[view], test[view] if test else None, bench.train.class_names)
    if "knn" in measured:
        metrics += knn(train[view], test[view] if test else None, ks=options.k, seed=options.seed, **described)
    if "linear" in measured:
        metrics += [
            linear(train[view], test[view] if test else None, probe=probe, seed=options.seed, **described)
            for probe in options.probe
            if probe != "mae"
        ]
        if "mae" in options.probe and subject == "trained":
            metrics.append(_mae_probe(bench, encoder, view, test, described))
    if "rank" in measured:
        judged = test or train
        metrics += ranks(judged[token_view], judged[view], **described)
    return metrics


def _mae_probe(
    bench: Bench, encoder: Encoder, view: View, test: dict[View, FeatureSet] | None, described: dict[str, Any]
) -> Metric:
    if test is None:
        raise ConfigError(
            "probe is 'mae' without --test; allowed: give --test, because it retrains on augmented images"
        )
    with Progress("mae probe", 90, "epochs") as progress:
        return mae_linear(
            encoder,
            bench.train,
            test[view],
            view=view,
            seed=bench.options.seed,
            report=lambda done, total: progress.show(done),
            **described,
        )


def _layer(encoder: Encoder, options: EvaluateOptions) -> str:
    """The one layer asked for, or the last."""
    named = [name for name in options.layers if name not in ("last", "all")]
    if len(options.layers) == 1 and named and len(encoder.layers) > 1:
        if named[0] not in encoder.layers:
            raise ConfigError(f"layers is {named[0]!r}; allowed: last, all, or of {', '.join(encoder.layers)}")
        return named[0]
    return encoder.default_layer


def _scan(bench: Bench, measured: tuple[str, ...]) -> list[Metric]:
    """Every layer and pooling; the best is chosen on folds of the training set, never on the test set."""
    encoder, options = bench.encoder, bench.options
    named = [encoder.default_layer if name == "last" else name for name in options.layers]
    layers = encoder.layers if "all" in options.layers else tuple(dict.fromkeys(named))
    poolings = POOLINGS if encoder.has_class_token else ("mean",)
    views = [View(layer, pooling) for layer in layers for pooling in poolings]
    train = _features(bench, encoder, views, bench.train, "every layer, train")
    test = _features(bench, encoder, views, bench.test, "every layer, test") if bench.test is not None else None
    metrics: list[Metric] = []
    chosen: dict[View, float] = {}
    for view in views:
        if "knn" in measured:
            described = {"features": "trained", "scan": "layers"}
            (folded,) = knn(train[view], None, ks=options.k[:1], seed=options.seed, **described)
            chosen[view] = folded.value
            metrics += (
                knn(train[view], test[view], ks=options.k[:1], seed=options.seed, **described) if test else [folded]
            )
        if "rank" in measured and view.pooling == options.pooling:
            tokens = View(view.layer, "cls") if encoder.has_class_token else view
            judged = test or train
            metrics += ranks(judged[tokens], judged[view], features="trained", scan="layers")
    if chosen:
        best = max(chosen, key=lambda view: chosen[view])
        bench.say(
            f"best layer and pooling by kNN in five folds of the training set: {best.layer}, {best.pooling} "
            f"({100 * chosen[best]:.2f} %)"
        )
    return metrics


def _snapshots(bench: Bench, run: Path | None, measured: tuple[str, ...]) -> list[Metric]:
    folders = RunFolder(run).snapshot_folders() if run is not None else []
    if not folders:
        raise RunError("there are no snapshots to measure; train with --snapshot-every N")
    metrics: list[Metric] = []
    for folder in folders:
        encoder = from_folder(folder, str(choose_device(bench.options.device)))
        metrics += _numbers(bench, encoder, measured, "trained", step=int(folder.name.removeprefix("step-")))
    return metrics


def _pictures(bench: Bench, run: Path | None, measured: tuple[str, ...]) -> list[Metric]:
    """What is looked at rather than read: PNGs in RUN/figures, with the numbers that go with them."""
    figures = (run or Path.cwd() / "echoless-figures") / ("figures" if run else "")
    metrics: list[Metric] = []
    if "spectral" in measured:
        layers = [_layer(bench.encoder, bench.options)]
        for subject, encoder in _subjects(bench):
            if encoder.grid is None:
                continue
            maps = spectral_maps(
                encoder,
                bench.judged,
                layers=layers,
                count=bench.options.images,
                seed=bench.options.seed,
                features=subject,
            )
            metrics += [maps.metric] if maps.metric else []
            shown = {"images": maps.images_ICHW[:12], f"top three eigenvectors as RGB, {subject}": maps.rgb_I3hw[:12]}
            bench.say(f"written: {pictures.rows(figures / f'spectral-{subject}.png', shown)}")
    if "reconstruct" in measured:
        metrics += _reconstructions(bench, run, figures)
    if "tsne" in measured:
        bench.say(f"written: {_map(bench, figures)}")
    return metrics


def _reconstructions(bench: Bench, run: Path | None, figures: Path) -> list[Metric]:
    if run is None:
        bench.say("reconstruct needs a run with its decoder: left out")
        return []
    result = reconstruct(run, bench.judged, count=12, seed=bench.options.seed)
    undone = " (normalised pixels undone with the true mean and spread of each hidden patch)"
    titled = {
        "ground truth": result.truth,
        "masked": result.masked,
        f"reconstruction{undone if result.true_statistics else ''}": result.reconstructed,
    }
    bench.say(f"written: {pictures.rows(figures / 'reconstructions.png', titled)}")
    return []


def _map(bench: Bench, figures: Path) -> Path:
    from echoless.measures import tsne_map
    from echoless.reports.plots import scatter

    view = View(_layer(bench.encoder, bench.options), bench.options.pooling)
    features = _features(bench, bench.encoder, [view], bench.judged, "the map")[view]
    points = tsne_map(features.features_ND[:2000], seed=bench.options.seed)
    labels = None if features.labels_N is None else features.labels_N[:2000]
    return scatter(figures / "tsne.png", points, labels, bench.judged.class_names)
