"""How does `demo` pretrain plain and faded encoders side by side, and compare them? The half of it that needs torch.

What counts as a win is printed before anything is trained; the verdict is whatever was measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from echoless.config.metrics import METRICS, Metric
from echoless.config.options import DemoOptions
from echoless.errors import Interrupted, RunError
from echoless.reports.blocks import profiles
from echoless.reports.collect import collect_all
from echoless.reports.compare import ComparedMetric, Difference, Estimate, Group, compare, groups_of
from echoless.runtime import StopRequest, choose_device, duration
from echoless.runtime.machine import usable_cores
from echoless.sweeps.commands import RUN, command
from echoless.sweeps.executors.on_local import LocalExecutor
from echoless.sweeps.experiment import Experiment, Quantity, Trial
from echoless.sweeps.run import carry_out, prepare_folder
from echoless.sweeps.tabulate import collect

TRAIN, LABELLED, TEST = "shapes:64000", "shapes:8000", "shapes:2000@test"
SHORTCUTS = {"plain": 1.0, "faded": 0.4}  # alpha_min
MEASURED = ("knn", "linear", "rank", "spectral", "tsne", "reconstruct")
SEGMENTED = 100  # images
MOST_AT_ONCE = 8  # runs; each holds its images and features in memory
JUDGED = ("knn", "linear")
Say = Callable[[str], None]


def run_demo(options: DemoOptions, say: Say) -> dict[str, list[Metric]]:
    started, out = time.monotonic(), Path(options.out)
    experiment = plan(options)
    say(f"{criterion(options.seeds)}\n")
    lock = prepare_folder(experiment, out, {})  # the sets are drawn from their names
    try:
        with StopRequest() as stop:
            result = carry_out(experiment, out, stop, say, LocalExecutor(side_by_side(len(experiment.trials))))
    finally:
        lock.release()
    if result.stopped:
        raise Interrupted(f"the demo in {out} was interrupted")
    if result.failed:
        raise RunError(f"the demo was not finished; the same command continues it (in {out})")
    say(f"\n{duration(time.monotonic() - started)} in all")
    return collect(experiment, out)


def plan(options: DemoOptions) -> Experiment:
    """The two runs of each seed one after the other, so that they train side by side."""
    trials = [
        _trial(options, name, seed) for seed in range(options.seed, options.seed + options.seeds) for name in SHORTCUTS
    ]
    return Experiment(
        name="demo",
        title=f"Masked autoencoders on {TRAIN}, evaluated on {TEST}",
        trials=tuple(trials),
        quantities=tuple(Quantity(metric=name) for name in ("knn", "linear", "miou", "miou_object", "rankme")),
        contrast=("shortcuts", "alpha_min"),
        conclusions=(conclude,),
    )


def _trial(options: DemoOptions, name: str, seed: int) -> Trial:
    train = command(
        "pretrain",
        TRAIN,
        out=RUN,
        recipe="demo",
        alpha_min=SHORTCUTS[name],
        seed=seed,
        max_steps=options.steps,
        resume=True,
    )
    first = name == "plain" and seed == options.seed  # raw pixels and an untrained encoder are the same for all
    sets = {"train": LABELLED, "test": TEST, "images": SEGMENTED}
    measure = command("evaluate", RUN, **sets, metrics=MEASURED, layers="all", baselines=first, seed=seed)
    settings = {"shortcuts": name, "alpha_min": SHORTCUTS[name], "seed": seed}
    return Trial(name=f"{name}-{seed}", settings=settings, commands=(train, measure))


def side_by_side(runs: int) -> int:
    """How many runs train at a time: small networks learn more on one core each than one after the other on all."""
    return 1 if choose_device("auto").type != "cpu" else min(runs, usable_cores(), MOST_AT_ONCE)


def criterion(seeds: int) -> str:
    spread = "test images, because one seed has no other spread" if seeds == 1 else f"{seeds} seeds, paired"
    return (
        "A win for fading: kNN accuracy at the last layer above that of the plain encoder, with the whole 95 % "
        f"interval of the difference above zero (over {spread}). Wholly below zero is a loss, anything else is no "
        "difference. The linear probe is judged in the same way. Both encoders have the same settings, data and "
        "seeds; only alpha_min differs."
    )


def conclude(experiment: Experiment, found: Mapping[str, Sequence[Metric]], out: Path) -> list[str]:
    """Nothing is concluded before every run has been measured."""
    if not all(found.get(trial.name) for trial in experiment.trials):
        return []
    groups = groups_of(collect_all([out / trial.name for trial in experiment.trials]))
    return verdict(groups, found[experiment.trials[0].name])


def verdict(groups: Sequence[Group], first: Sequence[Metric]) -> list[str]:
    """What the criterion says of plain and faded, in this order; `first` are the metrics of a run with baselines."""
    plain, faded = groups
    rows = {row.metric: row for row in compare(groups) if row.metric in JUDGED}
    lines = [_judged(rows[name], plain.seeds) for name in JUDGED if name in rows]
    lines += [f"{METRICS[name].title}, without training: {_baselines(first, name)}" for name in JUDGED]
    for profile in profiles([plain, faded], "knn"):
        shares = ", ".join(f"{100 * estimate.value:.0f}" for estimate in profile.estimates)
        lines.append(f"kNN % by block, {profile.group.runs[0].name.rpartition('-')[0]}: {shares}")
    if plain.seeds == 1:
        lines.append("One seed: the next one may differ by several points. --seeds 5 measures the spread.")
    lines.append("Synthetic shapes and minutes of training; docs/results.md has photographs and longer runs.")
    return lines


def _judged(row: ComparedMetric, seeds: int) -> str:
    plain, faded = row.estimates
    difference = row.differences[1]
    assert plain is not None and faded is not None and difference is not None
    over = f"{seeds} seeds" if seeds > 1 else "one seed"
    return (
        f"{METRICS[row.metric].title}: {_word(difference)}. Plain {_share(plain)}, faded {_share(faded)}, difference "
        f"{_share(Estimate(difference.value, difference.interval, seeds), '+')} points ({over})"
    )


def _word(difference: Difference) -> str:
    low, high = difference.interval or (-1.0, 1.0)
    if low > 0:
        return "fading WINS"
    return "fading LOSES" if high < 0 else "no difference beyond the interval"


def _share(estimate: Estimate, sign: str = "") -> str:
    ends = "" if estimate.interval is None else f" [{', '.join(f'{100 * end:{sign}.1f}' for end in estimate.interval)}]"
    return f"{100 * estimate.value:{sign}.1f}{ends}"


def _baselines(metrics: Sequence[Metric], name: str) -> str:
    found = {m.protocol.get("features"): m for m in metrics if m.metric == name and "scan" not in m.protocol}
    shown = [f"{kind} {100 * found[kind].value:.1f}" for kind in ("raw pixels", "untrained") if kind in found]
    return ", ".join(shown) or "not measured"
