"""How does a sweep go from a plan to a table? Plan, estimate the time, run what is not done, compare."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import Any

from echoless.config.checks import require_whole
from echoless.config.metrics import Metric
from echoless.config.options import SweepOptions
from echoless.config.options.evaluate import INCEPTION
from echoless.config.options.fields import flag, path_text
from echoless.config.tables import aligned
from echoless.data import Images
from echoless.data.overlap import overlap_warning
from echoless.data.reading import align_classes, attach_masks, leave_out_unlabelled, read_images
from echoless.errors import ConfigError, EcholessError, RunError
from echoless.evaluation.reference import published_moments, require_statistics
from echoless.reports.page import Findings, report
from echoless.runs.autoencoder import require_vae
from echoless.runtime import Progress, StopRequest, duration
from echoless.storage import read_json_object, write_json
from echoless.storage.atomic import clear_leftovers, explained
from echoless.storage.lock import FileLock
from echoless.sweeps.baselines import measured_once, without_choice
from echoless.sweeps.dispatch import run_trials
from echoless.sweeps.estimate import TimeEstimate, estimate_from_finished, estimate_from_first_steps
from echoless.sweeps.executors import Executor, open_executor
from echoless.sweeps.executors.on_local import LocalExecutor
from echoless.sweeps.experiment import Experiment, Trial
from echoless.sweeps.grid import grid
from echoless.sweeps.ledger import Ledger, Outcome, is_done, require_same_training
from echoless.sweeps.papers import paper
from echoless.sweeps.starting import PLAIN, Starting, fills_shared_folder
from echoless.sweeps.tabulate import collect, findings, table, write_csv

PLAN = "sweep.json"
LINE_SECONDS = 60.0  # between lines of progress where there is no terminal
MOST_ON_A_PAGE = 30  # runs; a page of more is neither small nor legible
Say = Callable[[str], None]
Sets = Mapping[str, str]  # "data", "train" and "test": a hash of the images and of their labels


@dataclass(frozen=True)
class SweepResult:
    """Which trials failed, whether the sweep was stopped, and what was measured of each run, or what to type.

    Prints as the table, in a terminal and in a notebook.
    """

    experiment: Experiment
    failed: tuple[str, ...] = ()
    stopped: bool = False
    metrics: Mapping[str, Sequence[Metric]] = field(default_factory=dict)
    commands: tuple[str, ...] = ()

    def __str__(self) -> str:
        measured = table(self.experiment, self.metrics) if self.metrics else "nothing was measured"
        lines = list(self.commands) or [measured]
        if self.stopped:
            lines.append("stopped by a signal; the same call continues")
        if self.failed:
            lines.append(f"failed: {', '.join(self.failed)}; the same call tries them again")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def run_sweep(options: SweepOptions, say: Say) -> SweepResult:
    out = Path(options.out)
    experiment, starting = plan(options), Starting.of(options)
    if options.print:
        return _print_lines(experiment, out, starting, say)
    _require_networks(options)
    _require_sweep_folder(out)  # before any image is read
    executor = open_executor(options, out, len(experiment.trials))
    try:
        sets, overlap = _read_data_once(options)
        if overlap:
            say(overlap)
            experiment = replace(experiment, warnings=(f"{overlap}.",))
        with prepare_folder(experiment, out, sets), StopRequest() as stop:
            return carry_out(experiment, out, stop, say, executor, starting)
    finally:
        executor.close()


def plan(options: SweepOptions) -> Experiment:
    """Everything that can be refused is refused here; nothing is read or written."""
    data = str(options.data)
    if options.jobs is not None:
        require_whole("jobs", options.jobs, 1, 1024)
    return measured_once(grid(data, options) if options.paper is None else paper(options.paper, data, options))


def _print_lines(experiment: Experiment, out: Path, starting: Starting, say: Say) -> SweepResult:
    """One line for each trial; behind it, for the reader, the commands that it runs."""
    printed = []
    with prepare_folder(experiment, out):
        for trial, line in zip(experiment.trials, command_lines(experiment, out, starting)):
            Ledger(out, trial).plan()
            printed.append(f"{shlex.join(['echoless', *starting.trial_words(out, trial.name)])}  # {line}")
            say(printed[-1])
    return SweepResult(experiment, commands=tuple(printed))


def _require_networks(options: SweepOptions) -> None:
    """Refuses a file that the last command of a trial would miss after days of training."""
    if options.latent is not None:
        require_vae(Path(options.latent))
    extractor = options.extractor or ""
    if extractor.startswith(INCEPTION) and not Path(extractor.removeprefix(INCEPTION)).is_file():
        raise ConfigError(
            f"extractor is {extractor!r}, but the file {extractor.removeprefix(INCEPTION)} does not exist"
        )
    if options.reference not in (None, "train", "test"):
        published_moments(require_statistics(str(options.reference)))


def _read_data_once(options: SweepOptions) -> tuple[Sets, str]:
    """Refuses unreadable data once, before any run; the decoded images are cached for all runs.

    Also returns a sentence where images of --test are among those that accuracies are learned from.
    """
    of_labelled = (options.labels, options.masks)
    given = {
        "data": (options.data, *(of_labelled if options.train is None else (None, None))),
        "train": (options.train, *of_labelled),
        "test": (options.test, options.test_labels, options.test_masks),
    }
    learned_from = "data" if options.train is None else "train"
    called = {"data": "DATA", "train": flag("train"), "test": flag("test")}
    classes, meaning = path_text(options.classes), path_text(options.mask_classes)
    several = options.train is not None or options.test is not None
    sets: dict[str, str] = {}
    opened: dict[str, Images] = {}
    for name, (data, labels, masks) in given.items():
        if data is None:
            continue
        images = read_images(
            str(data),
            path_text(labels),
            classes=classes,
            require_labels=name == learned_from,
            which=called[name] if several else "",
            like=next((images for images in opened.values() if images.labels is not None), None),
        )
        if masks is not None:
            attach_masks(images, str(masks), meaning, 255)
        opened[name] = images
        sets[name] = f"{images.fingerprint[:16]}-{images.label_fingerprint[:16]}"
    if "test" not in opened:
        return sets, ""
    learned, test = opened[learned_from], opened["test"]
    align_classes(learned, test)  # names that do not agree would be found after the first training
    for images in (learned, test):
        leave_out_unlabelled(images)
    return sets, overlap_warning(learned, test, called[learned_from])


def prepare_folder(experiment: Experiment, out: Path, sets: Sets | None = None) -> FileLock:
    """Creates OUT, or checks that it holds the same sweep of the same images, and locks it.

    Without `sets`, for commands that are only printed, the plan of an earlier sweep stays.
    """
    _require_sweep_folder(out)
    with explained(out):
        (out / "logs").mkdir(parents=True, exist_ok=True)
    lock = FileLock(out / ".lock", busy=f"{out} is being filled by another sweep; wait for it, or give another --out")
    try:
        recorded = read_json_object(out / PLAN) if (out / PLAN).is_file() else None
        if recorded is not None and (name := recorded.get("name")) != experiment.name:
            raise RunError(f"{out} holds another sweep, {name!r} instead of {experiment.name!r}; give another --out")
        for trial in experiment.trials:
            require_same_training(out, trial)
        if recorded is not None and sets is None:
            _require_same_plan(experiment, recorded, out)
        _require_same_sets(out, sets or {})
        for folder in (out, out / "logs"):
            clear_leftovers(folder)
        if sets is not None or not (out / PLAN).is_file():
            write_json(out / PLAN, plan_as_json(experiment) | {"sets": sets or {}})
    except BaseException:
        lock.release()
        raise
    return lock


def _require_sweep_folder(out: Path) -> None:
    with explained(out):
        if out.is_dir() and any(out.iterdir()) and not (out / PLAN).is_file():
            raise RunError(f"{out} is not empty and holds no sweep; give --out a new folder")


def _require_same_plan(experiment: Experiment, recorded: Mapping[str, Any], out: Path) -> None:
    """Refuses to print commands for runs that are planned with others.

    Printed commands leave no trace of having begun, so the plan is all that says which runs the folder is for.
    """
    planned = {trial["name"]: [*map(without_choice, trial["commands"])] for trial in recorded.get("trials", ())}
    for trial in experiment.trials:
        commands = [*map(without_choice, trial.commands)]  # baselines make no other run: earlier versions had none
        if planned.get(trial.name, commands) != commands:
            raise RunError(
                f"{out / PLAN} plans {trial.name} with other settings; nothing was printed or changed; give the same "
                "settings, or another --out"
            )


def _require_same_sets(out: Path, sets: Sets) -> None:
    """Runs that are done are not measured again: images or labels that were replaced since would go unnoticed."""
    recorded = read_json_object(out / PLAN).get("sets") if (out / PLAN).is_file() else None
    for name, found in sets.items():
        if isinstance(recorded, dict) and recorded.get(name, found) != found:
            raise RunError(
                f"the images or labels of {name} are not those with which the sweep in {out} began; give another --out"
            )


def plan_as_json(experiment: Experiment) -> dict[str, Any]:
    """The plan as JSON: what sweep.json holds."""
    trials = [
        {"name": trial.name, "settings": dict(trial.settings), "commands": [list(words) for words in trial.commands]}
        for trial in experiment.trials
    ]
    figures = [
        {"metric": figure.metric, "value": figure.value, "settings": dict(figure.settings)}
        for figure in experiment.published
    ]
    texts = {"name": experiment.name, "title": experiment.title, "notes": list(experiment.notes)}
    return {**texts, "trials": trials, "published": figures}


def command_lines(experiment: Experiment, out: Path, starting: Starting) -> list[str]:
    """The commands of each trial as a line for a shell, to be run in any order and at the same time."""
    return [
        " && ".join(
            starting.line(placed, shared=fills_shared_folder(words))
            for words, placed in zip(trial.commands, trial.commands_in(out))
        )
        for trial in experiment.trials
    ]


def carry_out(
    experiment: Experiment,
    out: Path,
    stop: StopRequest,
    say: Say,
    executor: Executor,
    starting: Starting = PLAIN,
) -> SweepResult:
    done = [trial for trial in experiment.trials if is_done(out, trial)]
    left = [trial for trial in experiment.trials if trial not in done]
    estimate = estimate_from_finished(done, out, executor.slots)
    say(overview(experiment, done, estimate))
    if left and estimate is None and isinstance(executor, LocalExecutor) and not stop.requested:
        estimate = estimate_from_first_steps(left, out, stop, say, executor, starting)
    if left and not stop.requested:
        how_long = f"about {estimate.of(left)} ({estimate.origin})" if estimate else "the time is not known yet"
        say(f"{len(done)} of {len(experiment.trials)} runs are done; {len(left)} to go: {how_long}")
        if isinstance(executor, LocalExecutor):
            say(_at_a_time(executor.slots, len(left)))
        say("")
    result = _run_all(experiment, left, out, executor, stop, say, starting)
    if result.stopped:
        say(f"stopped by {stop.requested}; {executor.after_stop}, the same command continues")
        return result
    return _compare(result, out, say)


def _at_a_time(slots: int, left: int) -> str:
    together = min(slots, left)
    return f"{together} runs at a time (--jobs)" if together > 1 else "one run at a time (--jobs)"


def overview(experiment: Experiment, done: Sequence[Trial], estimate: TimeEstimate | None) -> str:
    """The plan, one line for each setting."""
    groups: dict[tuple[tuple[str, Any], ...], list[Trial]] = {}
    for trial in experiment.trials:
        groups.setdefault(trial.group, []).append(trial)
    names = list(dict.fromkeys(key for group in groups for key, _ in group))
    lines = [[*names, "runs", "done", "to go"]]
    for group, trials in groups.items():
        left = [trial for trial in trials if trial not in done]
        ready, to_go = str(len(trials) - len(left)), estimate.of(left) if estimate and left else "" if left else "-"
        lines.append([*(str(dict(group).get(name, "-")) for name in names), str(len(trials)), ready, to_go])
    return f"{experiment.title}\n\n{aligned(lines)}\n"


def _run_all(
    experiment: Experiment,
    left: Sequence[Trial],
    out: Path,
    executor: Executor,
    stop: StopRequest,
    say: Say,
    starting: Starting,
) -> SweepResult:
    """Runs the trials that are left; a failure does not stop the others."""
    total, to_go = len(experiment.trials), list(left)
    failed: list[str] = []
    stopped = False
    with Progress("sweep", total, "runs", every=LINE_SECONDS) as progress:
        progress.begin(total - len(left))

        def watch(running: Mapping[str, str]) -> None:
            progress.show(total - len(to_go), "; ".join(f"{name}: {far}" for name, far in running.items()))

        for trial, outcome in run_trials(left, out, executor, stop, watch, progress.say, starting):
            if outcome.state == "stopped":
                stopped = True
                continue
            to_go.remove(trial)
            if outcome.state == "failed":
                failed.append(trial.name)
            say(f"[{total - len(to_go)}/{total}] {_outcome_line(trial, out, outcome, to_go, executor.slots)}")
    return SweepResult(experiment, tuple(failed), stopped)


def _outcome_line(trial: Trial, out: Path, outcome: Outcome, rest: Sequence[Trial], jobs: int) -> str:
    if outcome.state == "failed":
        return f"{trial.name} FAILED: {outcome.text}"
    seconds = sum(entry.seconds for entry in Ledger(out, trial).finished)
    side_by_side = min(jobs, max(1, len(rest)))
    left = seconds / trial.cost * sum(other.cost for other in rest) / side_by_side
    more = f"; about {duration(left)} to go" if rest else ""
    return f"{trial.name}: {outcome.text or 'done'} in {duration(seconds)}{more}"


def _compare(result: SweepResult, out: Path, say: Say) -> SweepResult:
    found = collect(result.experiment, out)
    write_csv(out / "sweep.csv", result.experiment, found)
    concluded = [line for conclude in result.experiment.conclusions for line in conclude(result.experiment, found, out)]
    say(f"\n{table(result.experiment, found)}")
    say(f"\nall numbers: {out / 'sweep.csv'}; the plan: {out / PLAN}")
    say(_page(result.experiment, out, replace(findings(result.experiment, found), conclusions=concluded)))
    if concluded:
        say("\n".join(["", *concluded]))
    if result.failed:
        say(f"{len(result.failed)} of {len(result.experiment.trials)} runs failed; the same command tries them again")
    return replace(result, metrics=found)


def _page(experiment: Experiment, out: Path, first: Findings) -> str:
    """The findings, and the runs that exist, the first of them as the baseline; a sweep never fails for its page."""
    runs = [out / trial.name for trial in experiment.trials if (out / trial.name / "config.json").is_file()]
    shown = runs[:MOST_ON_A_PAGE]
    if not shown:
        return "no run has started, so there is no report"
    try:
        page = report(shown, out / "report.html", first)
    except EcholessError as error:
        return f"the report was not written: {error}"
    fewer = f", the first {len(shown)} of {len(runs)} runs; echoless report shows others" if shown != runs else ""
    return f"report: {page}{fewer}"
