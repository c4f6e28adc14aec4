"""At what scale is an experiment of a paper repeated? For minutes, for hours, or as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from echoless.config.checks import require_whole
from echoless.config.options import SweepOptions
from echoless.recipes.experiment import RUN, Experiment, Trial, Words, command, trial_name


@dataclass(frozen=True, kw_only=True)
class Source:
    """What the user gave: the images to learn from and to be judged on, and how often."""

    data: str
    test: str | None = None
    labels: str | None = None
    test_labels: str | None = None
    seeds: int = 3
    device: str | None = None

    @staticmethod
    def of(data: str, options: SweepOptions) -> Source:
        require_whole("seeds", options.seeds, 1, 100)
        device = None if options.device == "auto" else options.device
        return Source(
            data=data,
            test=options.test,
            labels=options.labels,
            test_labels=options.test_labels,
            seeds=options.seeds,
            device=device,
        )


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large. `training` are options of `pretrain`; the depth is always the paper's, because alpha depends on it."""

    name: str
    training: Mapping[str, Any]
    widths: Mapping[int, int]  # of the paper -> here
    snapshots: int  # how often a run is looked at over training
    steps: int | None  # None: the recipe's
    imagenet100_probe: str = "quick"  # what stands for the probe of Tables 2 and 3
    imagenet1k_probe: str = "quick"  # what stands for the probe of Table 1
    finetuning: Mapping[str, Any] = field(default_factory=dict)


Build = Callable[[Source, Scale], Experiment]

SCALES = {
    "tiny": Scale(
        name="tiny",
        training={"recipe": "demo", "max_steps": 200, "batch_size": 64},
        widths={384: 32, 768: 64, 1024: 96},
        snapshots=5,
        steps=200,
        finetuning={"max_steps": 100, "batch_size": 64},
    ),
    "cpu": Scale(
        name="cpu",
        training={"recipe": "cifar10", "max_steps": 4000},
        widths={384: 64, 768: 128, 1024: 192},
        snapshots=10,
        steps=4000,
        finetuning={"max_steps": 2000, "batch_size": 128},
    ),
    "paper": Scale(
        name="paper",
        training={"recipe": "mae-base"},
        widths={384: 384, 768: 768, 1024: 1024},
        snapshots=16,
        steps=None,
        imagenet100_probe="imagenet100",
        imagenet1k_probe="mae",
    ),
}


def masked_trials(
    source: Source,
    scale: Scale,
    cells: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]],
    *,
    measures: Sequence[Words],
    results: tuple[str, ...] = (RUN,),
    may_diverge: bool = False,
) -> tuple[Trial, ...]:
    """One trial for each cell and seed. A cell is what the table shows, and the options of `pretrain` that make it."""
    trials = []
    for seed in range(source.seeds):
        for shown, options in cells:
            settings = {**shown, "seed": seed}
            chosen = {**scale.training, **options}
            size = float(options.get("depth", 12)) * float(options.get("width", 1)) ** 2
            train = command(
                "pretrain", source.data, out=RUN, **chosen, labels=source.labels, seed=seed, device=source.device
            )
            trial = Trial(
                name=trial_name({key: str(value).replace(" ", "") for key, value in settings.items()}),
                settings=settings,
                commands=((*train, "--resume"), *measures),
                cost=size,
                results=results,
                may_diverge=may_diverge,
            )
            trials.append(trial)
    return tuple(trials)


def evaluation(source: Source, metrics: Sequence[str], **more: Any) -> Words:
    """`echoless evaluate` of the trial's run."""
    return command(
        "evaluate",
        RUN,
        train=source.data,
        test=source.test,
        labels=source.labels,
        test_labels=source.test_labels,
        metrics=tuple(metrics),
        device=source.device,
        baselines=False,
        **more,
    )
