"""How does `evaluate` go from a run to a table of numbers with protocols?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from torch import Tensor

from echoless.config.metrics import Metric
from echoless.config.options import EvaluateOptions
from echoless.config.options.fields import AnyPath
from echoless.data import Images, default_cache_dir
from echoless.data.overlap import overlap_warning
from echoless.data.reading import align_classes, read_images
from echoless.errors import RunError
from echoless.evaluation import noise_grid as grid
from echoless.evaluation.bench import Bench, Subject
from echoless.evaluation.classify import check_labels, fold_count
from echoless.evaluation.encoder import Encoder, open_encoder, raw_pixels
from echoless.evaluation.extract import check_channels
from echoless.evaluation.layer_scan import check_layers, scan, scan_features
from echoless.evaluation.layer_scan import wanted as scan_wanted
from echoless.evaluation.rank_against_accuracy import across, open_others
from echoless.evaluation.registry import METRICS
from echoless.evaluation.snapshots import check_snapshots, measure_snapshots
from echoless.reports.datasheet import show_data
from echoless.runs import RunFolder
from echoless.runs.open import converted_channels
from echoless.runtime import choose_device
from echoless.verbs.early import require_data, require_test_of
from echoless.verbs.signature import signature_of

Say = Callable[[str], None]


@signature_of(EvaluateOptions)
def evaluate(options: EvaluateOptions, say: Say = print) -> list[Metric]:
    """Returns every number with its protocol; they are also added to RUN/results.json."""
    require_test_of(options.test_labels, options.test)
    require_data(options.train, options.test)
    bench = _prepare(options, say)
    measured = _allowed(bench)
    _check(bench, measured)
    metrics: list[Metric] = []
    for part in _parts(bench, measured, open_others(bench, measured)):
        metrics += part
        if bench.run is not None:  # part by part, so that little is lost when the rest is interrupted
            RunFolder(bench.run).add_results([metric.to_json() for metric in part])
    if bench.run is not None:
        _show_own_images(RunFolder(bench.run), bench)
    return metrics


def _parts(bench: Bench, measured: Sequence[str], others: Sequence[Bench]) -> Iterator[list[Metric]]:
    """The grid that chooses a level of noise, every subject, then layers, then snapshots, then other runs."""
    if grid.wanted(bench):
        bench, searched = grid.search(bench, measured)
        yield searched
    layers = scan_features(bench) if scan_wanted(bench) else None
    for subject in _subjects(bench):
        wanted = [name for name in measured if subject.name == "trained" or METRICS[name].baselines]
        yield [metric for name in wanted for metric in METRICS[name].of(subject)]
    if layers is not None:
        yield scan(bench, measured, *layers)
    if bench.options.snapshots:
        over_training = measure_snapshots(bench, measured)
        yield over_training
        if others:
            yield across(bench, over_training, others, measured)


def _show_own_images(run: RunFolder, bench: Bench) -> None:
    """For the report of a run that was trained before runs kept a few of their images."""
    config = run.read_config() if (run.path / "config.json").exists() else {}
    if config.get("data", {}).get("fingerprint") == bench.train.fingerprint:
        show_data(run, bench.train, bench.encoder.image_size)


def _prepare(options: EvaluateOptions, say: Say) -> Bench:
    source = str(options.run)
    latent = str(options.latent) if options.latent else None
    encoder = open_encoder(source, device=str(choose_device(options.device)), latent=latent)
    channels = converted_channels(source)
    run = Path(source) if (Path(source) / "checkpoints").is_dir() else None
    data = str(options.train) if options.train else _data_of(Path(source))
    train = _open(data, options.labels, channels, encoder)
    test = _open(str(options.test), options.test_labels, channels, encoder) if options.test else None
    if test is not None:
        align_classes(train, test)
        if warning := overlap_warning(train, test, (data, str(options.test))):
            say(warning)
    cache = (run or default_cache_dir()) / "features" if options.cache else None
    return Bench(encoder, train, test, options, run, cache, say)


def _data_of(run: Path) -> str:
    try:
        return str(RunFolder(run).read_config()["data"]["path"])
    except Exception:
        raise RunError(f"{run} does not say which images it was trained on; give --train") from None


def _open(data: str, labels: AnyPath | None, channels: int | None, encoder: Encoder) -> Images:
    images = read_images(data, str(labels) if labels else None, channels)
    check_channels(encoder, images)
    return images


def _allowed(bench: Bench) -> tuple[str, ...]:
    """The metrics that the data allows; says which need labels."""
    names = bench.options.metrics
    dropped = [name for name in names if METRICS[name].needs_labels and not bench.labelled]
    if dropped:
        which, give = ("--train", "--labels") if bench.train.labels is None else ("--test", "--test-labels")
        bench.say(
            f"{which} has no labels, which {' and '.join(dropped)} need: measuring the others (or give {give} FILE.csv)"
        )
    return tuple(name for name in names if name not in dropped)


def _check(bench: Bench, measured: Sequence[str]) -> None:
    """Everything that can be refused is refused here, before any feature is computed."""
    check_layers(bench)
    grid.check_noise(bench)
    if bench.options.snapshots:
        check_snapshots(bench)
    if any(METRICS[name].needs_labels for name in measured):
        check_labels(_usable_labels(bench.train), _usable_labels(bench.judged), bench.train.class_names)
        if bench.test is None:
            fold_count(_usable_labels(bench.train))
    for name in measured:
        METRICS[name].check(bench)


def _usable_labels(images: Images) -> Tensor:
    assert images.labels is not None
    return images.labels[[index for index in range(len(images)) if index not in images.excluded]]


def _subjects(bench: Bench) -> Iterator[Subject]:
    yield Subject(bench, "trained", bench.encoder)
    if bench.options.baselines:
        yield Subject(bench, "raw pixels", raw_pixels(bench.encoder))
        if bench.encoder.untrained is not None:
            yield Subject(bench, "untrained", bench.encoder.untrained())
