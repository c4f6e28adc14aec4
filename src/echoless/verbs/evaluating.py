"""How does `evaluate` go from a run to a table of numbers with protocols? The half of the verb that needs torch."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext, redirect_stderr
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.config.addresses import is_remote, local_path
from echoless.config.counts import joined
from echoless.config.evaluated import Metrics
from echoless.config.metrics import Metric
from echoless.config.options import EvaluateOptions, same_sets_command
from echoless.config.options.fields import AnyPath, filled, path_text
from echoless.data import Images, default_cache_dir
from echoless.data.overlap import group_notes, keys_by_set, overlap_warning, taught_warning
from echoless.data.provenance import describe_labels, describe_sets
from echoless.data.reading import (
    align_classes,
    attach_masks,
    describe_bad,
    describe_large,
    describe_tiles,
    leave_out_unlabelled,
    read_images,
    settled_tiles,
    stand_for_tiles,
)
from echoless.data.shards import fixed_part, is_local_pattern
from echoless.data.synthetic import parse_shapes
from echoless.errors import DataError, RunError
from echoless.evaluation import noise_grid as grid
from echoless.evaluation.classify import check_labels, describe_small_classes
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.encoder import Encoder, raw_pixels
from echoless.evaluation.frozen import load
from echoless.evaluation.layer_scan import check_layers, scan, scan_features
from echoless.evaluation.layer_scan import wanted as scan_wanted
from echoless.evaluation.rank_against_accuracy import correlate_runs, open_others
from echoless.evaluation.registry import MEASUREMENTS
from echoless.evaluation.snapshots import check_snapshots, measure_snapshots
from echoless.evaluation.stored_patches import open_stored
from echoless.reports.datasheet import show_data
from echoless.runs import RunFolder
from echoless.runs.taught import taught_by
from echoless.runtime import Team, choose_device, join_team, leave_team
from echoless.storage.atomic import can_write
from echoless.verbs.closing import verdict_of

Say = Callable[[str], None]


def run_evaluation(options: EvaluateOptions, say: Say) -> Metrics:
    """Several processes (torchrun) do the same and share the images; the first alone speaks, writes and returns."""
    team = join_team(options.device)
    try:
        with nullcontext() if team.leads else redirect_stderr(io.StringIO()):
            metrics = _evaluate(replace(options, device=str(team.device)), say if team.leads else _ignore, team)
            return metrics if team.leads else Metrics()
    finally:
        leave_team()


def _ignore(text: str) -> None:
    pass


def _evaluate(options: EvaluateOptions, say: Say, team: Team) -> Metrics:
    evaluation = team.leader_first(lambda: _prepare(options, say))
    with team.together():
        measured = _allowed(evaluation)
        _check(evaluation, measured)
    metrics = Metrics()
    for found in _parts(evaluation, measured, open_others(evaluation, measured)):
        part = evaluation.with_sets(found)
        metrics += part
        if evaluation.home is not None and team.leads:  # part by part: little is lost when the rest is interrupted
            RunFolder(evaluation.home).add_results([metric.to_json() for metric in part])
    if evaluation.home is not None and team.leads:
        _show_own_images(RunFolder(evaluation.home), evaluation)
    for images in (evaluation.train, evaluation.test):
        for line in describe_bad(images, late=True) if images is not None else ():
            say(line)
    metrics.closing = (*(verdict_of(metrics, Path(options.run)) if team.leads else ()), *evaluation.closing)
    return metrics


def _parts(evaluation: Evaluation, measured: Sequence[str], others: Sequence[Evaluation]) -> Iterator[list[Metric]]:
    """The grid that chooses a level of noise, every source, then layers, then snapshots, then other runs."""
    if grid.wanted(evaluation):
        evaluation, searched = grid.search(evaluation, measured)
        yield searched
    layers = scan_features(evaluation) if scan_wanted(evaluation) else None
    for source in _sources(evaluation):
        wanted = [name for name in measured if source.name == "trained" or MEASUREMENTS[name].baselines]
        yield [metric for name in wanted for metric in MEASUREMENTS[name].measure(source)]
    if layers is not None:
        yield scan(evaluation, measured, *layers)
    if evaluation.options.snapshots:
        over_training = measure_snapshots(evaluation, measured)
        yield over_training
        if others:
            yield correlate_runs(over_training, others, measured)


def _show_own_images(run: RunFolder, evaluation: Evaluation) -> None:
    """For the report of a run that was trained before runs kept a few of their images."""
    config = run.read_config() if (run.path / "config.json").exists() else {}
    if config.get("data", {}).get("fingerprint") == evaluation.train.fingerprint:
        show_data(run, evaluation.train, evaluation.encoder.image_size)


def _prepare(options: EvaluateOptions, say: Say) -> Evaluation:
    source = Path(options.run)
    encoder = _open_encoder(options, say)
    known = options if options.train else _with_data_of(source, options)
    data, classes = str(known.train), path_text(known.classes)
    for line in describe_tiles(data, options.tiles, encoder.tiles):
        say(line)
    needed = all(MEASUREMENTS[name].needs_labels for name in options.metrics)
    open_any = partial(_open, encoder=encoder, tiles=options.tiles, classes=classes, needed=needed)
    open_set = partial(open_any, reduction=encoder.reduction)
    open_train = partial(open_set, data, known.labels)
    train, test = open_train(which="--train" if options.test else ""), None
    if options.test:
        test = open_set(options.test, options.test_labels, require_labels=False, which="--test", like=train)
    _attach_masks(train, options.masks, options)
    _attach_masks(test, options.test_masks, options)
    _settle(train, test, options.metrics, say)
    for line in _sizes(train, test, encoder):
        say(line)

    def originals() -> Images:
        """The same images at full size."""
        images = open_train(reduction=None, which=None, like=train)
        images.leave_out(train.excluded)
        return images

    taught = taught_by(source, keys_by_set(train, test))
    if warning := taught_warning(train, test, taught.keys):
        say(warning + _own_test(options, known))
    if taught.note:
        say(taught.note)
    evaluation = Evaluation(
        encoder=encoder,
        train=train,
        test=test,
        options=options,
        run=source if (source / "checkpoints").is_dir() else None,
        cache=None,
        say=say,
        sets=describe_sets(train, test, (data, str(options.test)), taught.keys) | _assumed(encoder),
        label_protocol=describe_labels(train, test),
        originals=originals,
        stored=open_stored(options.patches, encoder, [train] if test is None else [train, test]),
    )
    return _with_cache(evaluation)


def _assumed(encoder: Encoder) -> dict[str, Any]:
    return {"assumed_normalisation": encoder.assumed.normalisation} if encoder.assumed else {}


def _own_test(asked: EvaluateOptions, known: EvaluateOptions) -> str:
    """How the test set of the run itself is measured, where no set was asked for."""
    remembered = RunFolder(Path(asked.run)).read_about().get("runtime", {})
    if asked.train is not None or asked.test is not None or not _is_here(str(remembered.get("test", ""))):
        return ""
    tested = {name: remembered[name] for name in ("test", "test_labels") if name in remembered}
    return f"; its test set is measured by: {same_sets_command(asked.run, replace(known, **tested))}"


def _open_encoder(options: EvaluateOptions, say: Say) -> Encoder:
    encoder = load(options.run, device=str(choose_device(options.device)), latent=path_text(options.latent))
    if encoder.checkpoint is not None:
        say(f"the run has not ended: evaluating {encoder.name}")
    return encoder


def _with_cache(evaluation: Evaluation) -> Evaluation:
    """In the run, or in the common cache where that cannot be written; says that its numbers are not kept then."""
    if evaluation.run is None:
        evaluation.say(
            f"{evaluation.options.run} is not a run that was trained here: the numbers are printed, and not kept in it"
        )
    elif evaluation.home is None:
        evaluation.say(f"{evaluation.run} is read-only: the numbers are printed, and not kept in it")
    cache = (evaluation.home or default_cache_dir()) / "features"
    return replace(evaluation, cache=cache if evaluation.options.cache and can_write(cache) else None)


def _settle(train: Images, test: Images | None, metrics: Sequence[str], say: Say) -> None:
    """Which images are used: without a label, none where a metric needs labels. Says so, and which are in both sets."""
    if test is not None:
        align_classes(train, test)
    if any(MEASUREMENTS[name].needs_labels for name in metrics):
        for flag, images in (("--train", train), ("--test", test)):
            if images is not None and (sentence := leave_out_unlabelled(images)):
                say(f"{flag}: {sentence}")
    if test is not None and (warning := overlap_warning(train, test)):
        say(warning)


def _sizes(train: Images, test: Images | None, encoder: Encoder) -> list[str]:
    """Which images of either set are seen otherwise than the most; of one set given twice, once."""
    of_train = describe_large(train, encoder.framing, encoder.image_size, "--train" if test else "")
    if test is None or test.fingerprint == train.fingerprint:
        return of_train
    return of_train + describe_large(test, encoder.framing, encoder.image_size, "--test")


def _with_data_of(run: Path, options: EvaluateOptions) -> EvaluateOptions:
    """With the images that a run was trained on, their labels and classes, where nothing else is given."""
    try:
        data = RunFolder(run).read_config()["data"]
        known = {name: data.get(name) for name in ("labels", "classes")}
        found = filled(replace(options, train=str(data["path"])), known)
    except Exception:
        raise RunError(f"{run} does not say which images it was trained on; give --train") from None
    if not _is_here(str(found.train)):
        raise RunError(f"{run} was trained on {str(found.train)!r}, which is not found from this folder; give --train")
    return found


def _is_here(data: str) -> bool:
    """A relative path is there only from the folder in which the run was started."""
    if is_remote(data) or parse_shapes(data) is not None:
        return True
    path = Path(local_path(data))
    return path.exists() or (is_local_pattern(data) and fixed_part(data).exists())


def _open(data: AnyPath, labels: AnyPath | None, *, encoder: Encoder, tiles: int | None, **how: Any) -> Images:
    cut = settled_tiles(data, tiles, encoder.tiles)
    images = read_images(str(data), path_text(labels), encoder.channels, tiles=cut, **how)
    images.stand_for_tiles = stand_for_tiles(data, tiles, encoder.tiles)
    return images


def _attach_masks(images: Images | None, masks: AnyPath | None, options: EvaluateOptions) -> None:
    if images is not None and masks is not None:
        attach_masks(images, str(masks), path_text(options.mask_classes), options.mask_ignore)


def _allowed(evaluation: Evaluation) -> tuple[str, ...]:
    """The metrics that the labels allow; says which need others, and refuses where nothing is left."""
    names = evaluation.options.metrics
    dropped = [name for name in names if MEASUREMENTS[name].needs_labels]
    needing = f"{joined(dropped)} {'needs' if len(dropped) == 1 else 'need'}"
    missing = _missing_classes(evaluation, needing) if dropped else ""
    if not missing:
        return names
    if len(dropped) == len(names):
        raise DataError(missing)
    evaluation.say(f"{missing}; measuring the others")
    return tuple(name for name in names if name not in dropped)


def _missing_classes(evaluation: Evaluation, needing: str) -> str:
    """Why metrics cannot be measured with the labels that there are; empty where they can. needing: `knn needs`."""
    train = evaluation.train
    if not evaluation.labelled:
        which, give = ("--train", "--labels") if train.labels is None else ("--test", "--test-labels")
        return f"{which} has no labels, which {needing}; give {give} FILE, a CSV file with rows path,label"
    assert train.class_names is not None
    present = train.known_labels.unique().tolist()
    if len(present) > 1:
        return ""
    known = f"one class, {train.class_names[present[0]]!r}" if present else "no label"
    return f"--train has {known} (from {train.label_file or train.label_source}), and {needing} two or more"


def _check(evaluation: Evaluation, measured: Sequence[str]) -> None:
    """Everything that can be refused is refused here, before any feature is computed."""
    check_layers(evaluation)
    grid.check_noise(evaluation)
    if evaluation.options.snapshots:
        check_snapshots(evaluation)
    if any(MEASUREMENTS[name].needs_labels for name in measured):
        check_labels(
            _usable_labels(evaluation.train), _usable_labels(evaluation.test_or_train), evaluation.train.class_names
        )
        if evaluation.test is None and (few := _describe_small_classes(evaluation.train)):
            evaluation.say(few)
        for line in group_notes(evaluation.test_or_train, which="--test" if evaluation.test else ""):
            evaluation.say(line)
    for name in measured:
        MEASUREMENTS[name].check(evaluation)


def _describe_small_classes(train: Images) -> str:
    assert train.class_names is not None
    return describe_small_classes(_usable_labels(train), train.groups_of(train.usable_ids()), train.class_names)


def _usable_labels(images: Images) -> Tensor:
    assert images.labels is not None
    return images.labels[images.usable_ids()]


def _sources(evaluation: Evaluation) -> Iterator[FeatureSource]:
    yield FeatureSource(evaluation, "trained", evaluation.encoder)
    if evaluation.options.baselines:
        yield FeatureSource(evaluation, "raw pixels", raw_pixels(evaluation.encoder))
        if evaluation.encoder.untrained is not None:
            yield FeatureSource(evaluation, "untrained", evaluation.encoder.untrained())
