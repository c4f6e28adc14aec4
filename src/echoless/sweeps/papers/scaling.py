"""How does the gain of fading grow with images, alpha, depth and width? A study of our own, not one of the papers'.

One run gives every budget: the learning rate stays constant after its warm-up, and the averaged weights of each
snapshot stand for a run that ended there. Averaging does what a falling rate does, without a run for every length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from echoless.config.metrics import Metric, info_of
from echoless.sweeps.commands import RUN, Inputs, command, evaluate_command, option_of
from echoless.sweeps.experiment import Experiment, Quantity, Trial, trial_name
from echoless.sweeps.growth import Curve, Spread, crossing, gains, over_seeds, speed_up, spread, trend_of_gain
from echoless.sweeps.papers.diffusion import with_test
from echoless.sweeps.papers.scale import KNN, LINEAR, Build, Scale, effective_over

AVERAGING = 0.99  # a window of about 100 steps, a tenth of the shortest budget
FIGURE = "scaling.png"
Key = tuple[str, float]  # everything but alpha_min and the seed, in words; alpha_min


@dataclass(frozen=True, kw_only=True)
class ScalingSize:
    """The recipe and its lengths at one scale, and what is varied."""

    recipe: str
    batch: int
    steps: int
    snapshot_every: int
    alphas: tuple[float, ...]
    depths: tuple[int, ...]
    widths: tuple[int, ...]


ALL = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3)
SIZES = {
    "tiny": ScalingSize(
        recipe="demo", batch=64, steps=8000, snapshot_every=1000, alphas=(1.0, 0.6, 0.4), depths=(6,), widths=(64,)
    ),
    "cpu": ScalingSize(
        recipe="demo", batch=64, steps=32_000, snapshot_every=1000, alphas=ALL, depths=(6, 12), widths=(64, 128)
    ),
    "paper": ScalingSize(
        recipe="mae-base",
        batch=1024,
        steps=100_000,
        snapshot_every=3125,
        alphas=ALL,
        depths=(12, 24),
        widths=(384, 768),
    ),
}


def scaling(inputs: Inputs, scale: Scale) -> Experiment:
    """The gain of fading against images seen, for every alpha_min, depth and width."""
    size, inputs = SIZES[scale.name], with_test(inputs)
    trials = [
        _trial(inputs, size, depth, width, alpha, seed)
        for depth in size.depths
        for width in size.widths
        for seed in range(inputs.seeds)
        for alpha in size.alphas
    ]
    return Experiment(
        name=f"scaling-{scale.name}",
        title=f"Accuracy and the gain of fading against images seen ({scale.name}) on {inputs.data}",
        trials=tuple(trials),
        quantities=(KNN, LINEAR, Quantity(metric="rankme")),
        by=("step",),
        conclusions=(conclude,),
        notes=(
            f"{size.batch} images a step; constant learning rate, weights averaged with decay {AVERAGING}; every "
            "snapshot stands for a run of that length",
        ),
    )


def _trial(inputs: Inputs, size: ScalingSize, depth: int, width: int, alpha: float, seed: int) -> Trial:
    settings = {"depth": depth, "width": width, "alpha_min": alpha, "seed": seed}
    train = command(
        "pretrain",
        inputs.data,
        out=RUN,
        recipe=size.recipe,
        **settings,
        batch_size=size.batch,
        max_steps=size.steps,
        decay="constant",
        ema=AVERAGING,
        snapshot_every=size.snapshot_every,
        labels=inputs.data_labels,
        classes=inputs.classes,
        device=inputs.device,
        resume=True,
    )
    measure = evaluate_command(inputs, ("knn", "linear", "rank"), snapshots=True)
    reach = f"{effective_over(depth, alpha):.1e}"
    shown = {"depth": depth, "width": width, "alpha_min": alpha, "effective": reach, "seed": seed}
    return Trial(name=trial_name(settings), settings=shown, commands=(train, measure), cost=float(depth) * width**2)


def conclude(experiment: Experiment, found: Mapping[str, Sequence[Metric]], out: Path) -> list[str]:
    """What the curves say, in words, and OUT/scaling.png."""
    lines = []
    for metric in ("knn", "linear"):
        curves = curves_of(experiment, found, metric)
        for (network, alpha), faded in curves.items():
            plain = curves.get((network, 1.0))
            if alpha != 1.0 and plain is not None:
                lines.append(f"{info_of(metric).title}, {network}, alpha_min {alpha:g}: {_words(plain, faded)}")
    if lines:
        from echoless.reports.plots import growth_plot

        panels = {info_of(m).title: _drawn(experiment, found, m) for m in ("knn", "linear")}
        path = growth_plot(out / FIGURE, {title: drawn for title, drawn in panels.items() if drawn})
        lines.append(f"figure: {path}")
    return lines


def curves_of(
    experiment: Experiment, found: Mapping[str, Sequence[Metric]], metric: str
) -> dict[Key, dict[int, dict[int, float]]]:
    """Accuracy by images seen, for each setting and seed."""
    curves: dict[Key, dict[int, dict[int, float]]] = {}
    for trial in experiment.trials:
        measured = [m for m in found.get(trial.name, ()) if m.metric == metric and "step" in m.protocol]
        if measured:
            (batch,) = option_of(trial.commands[0], "batch_size") or ()
            curve = {int(m.protocol["step"]) * int(batch): m.value for m in measured}
            key = (_network(trial), trial.settings["alpha_min"])
            curves.setdefault(key, {})[trial.settings["seed"]] = curve
    return curves


def _network(trial: Trial) -> str:
    """`12 x 384`, and what else was varied on request: only runs that differ in alpha_min alone are compared."""
    shown = {"depth", "width", "alpha_min", "effective", "seed"}
    others = [f"{name} {value}" for name, value in trial.settings.items() if name not in shown]
    return ", ".join([f"{trial.settings['depth']} x {trial.settings['width']}", *others])


def _words(plain: Mapping[int, Curve], faded: Mapping[int, Curve]) -> str:
    gain_at = gains(plain, faded)
    means = {images: gain.mean for images, gain in gain_at.items()}
    best = max(means, key=lambda images: means[images])
    start = crossing(means)
    ahead = "never ahead at the end" if start is None else f"ahead from {start:,.0f} images on" if start else "ahead"
    parts = [ahead, f"largest gain {_points(gain_at[best])} at {best:,} images"]
    parts.append(f"{_points(gain_at[max(gain_at)])} at {max(gain_at):,}")
    if change := over_seeds(plain, faded, trend_of_gain):
        parts.append(f"changing by {_points(change)} per doubling at the end")
    if ratio := over_seeds(plain, faded, speed_up):
        ends = "" if ratio.interval is None else f" [{ratio.interval[0]:.2f}, {ratio.interval[1]:.2f}]"
        parts.append(f"plain needs {ratio.mean:.2f}{ends} times the images for the same accuracy")
    return "; ".join(parts)


def _points(gain: Spread) -> str:
    ends = "" if gain.interval is None else f" [{100 * gain.interval[0]:+.1f}, {100 * gain.interval[1]:+.1f}]"
    return f"{100 * gain.mean:+.1f}{ends} points"


def _drawn(experiment: Experiment, found: Mapping[str, Sequence[Metric]], metric: str) -> dict[str, Any]:
    """Name of a setting -> images seen -> mean and interval, in per cent."""
    drawn: dict[str, Any] = {}
    for (network, alpha), by_seed in curves_of(experiment, found, metric).items():
        counts = sorted({images for curve in by_seed.values() for images in curve})
        values = {images: [curve[images] for curve in by_seed.values() if images in curve] for images in counts}
        drawn[f"{network}, alpha_min {alpha:g}"] = {images: spread(each) for images, each in values.items()}
    return drawn


SCALING: dict[str, Build] = {"scaling": scaling}
