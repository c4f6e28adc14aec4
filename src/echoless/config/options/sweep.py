"""Which arguments does `sweep` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.checks import require
from echoless.config.metrics import require_measurements
from echoless.config.options.fields import AnyPath, group

# Settings of `pretrain` that --over takes: those that are one word each and decide the result.
SWEPT_SHORTCUTS = ("variant", "schedule", "per", "fade")
SWEPT = (
    *SWEPT_SHORTCUTS,
    *("decoder", "depth", "width", "decoder_depth", "zero_init"),
    *("mask_ratio", "normalize_pixels", "optimizer", "base_lr", "weight_decay", "warmup", "decay", "clip", "ema"),
    *("batch_size", "patch_size"),
)


@dataclass(frozen=True)
class SweepOptions:
    """Train and measure a grid of runs, or an experiment of the papers, and compare them over seeds.

    Estimates the time first. If it is stopped or killed, repeat the command to continue; finished runs are skipped. A
    failed run is reported and the others go on. Prints a table and writes DIR/sweep.csv and DIR/report.html.
    """

    EXAMPLES = (
        "echoless sweep PHOTOS --alpha-min 1.0 0.8 0.6 --seeds 3 --out SWEEP",
        "echoless sweep PHOTOS --paper table3b --scale tiny --out TABLE",
        "echoless sweep PHOTOS --out SWEEP --on slurm --slurm-options partition=gpu time=12:00:00 gres=gpu:1",
    )

    # Options of `pretrain` that are not of this verb -> how they are given here.
    ELSEWHERE = (
        *((name, f"--over {name}=VALUE") for name in SWEPT),
        ("time", "--epochs or --max-steps: runs that are compared have one length"),
    )

    data: AnyPath
    """A folder of images, parquet, tar shards, .npz, or `shapes`; parquet and tar also at an address. Accuracy needs
    labels."""
    _: KW_ONLY
    out: AnyPath
    """Output folder, with one sub-folder per run."""
    alpha_min: tuple[float, ...] | None = None
    """Values of alpha_min to try; 1 is a standard residual network (default: 1.0 0.9 0.8 0.7 0.6). With --paper, only
    the rows that have one of these values."""
    seeds: int = 3
    """Number of seeds per setting, counted from 0."""
    over: tuple[str, ...] = ()
    """Further pretrain settings as NAME=VALUE,VALUE: several values are varied, a single one is fixed for all runs
    (variant=faded,identity depth=6,12 base_lr=1e-3). A setting in which the rows of --paper differ chooses among
    them."""
    paper: str | None = None
    """Run an experiment of the papers instead of a grid; `echoless recipes` lists them."""
    scale: Literal["tiny", "cpu", "paper"] = "tiny"
    """Scale of --paper: tiny (minutes on two cores), cpu (hours on a few), paper (as published)."""
    recipe: str | None = None
    """Recipe that the runs start from (default: auto); `echoless recipes` lists them. Not with --paper."""
    epochs: float | None = None
    """Number of epochs of each run (default: from the recipe, 100 with auto, or the scale of --paper)."""
    max_steps: int | None = None
    """Number of training steps of each run, instead of --epochs."""
    batch_size: int | None = None
    """Images per step."""

    group("images and labels")
    train: AnyPath | None = None
    """Labelled images that kNN, probes and fine-tuning learn from (default: DATA). With it, DATA needs no labels."""
    test: AnyPath | None = None
    """Images to test on (default: five-fold cross-validation on --train)."""
    labels: AnyPath | None = None
    """A CSV file (path,label) for --train, or DATA."""
    test_labels: AnyPath | None = None
    """A CSV file (path,label) for --test."""
    classes: AnyPath | None = None
    """Use only these classes of DATA, --train and --test: a file with one class name per line, or imagenet100."""
    masks: AnyPath | None = None
    """Folder of label maps (PNG) for --train, or DATA, for spectral and segprobe."""
    test_masks: AnyPath | None = None
    """Folder of label maps (PNG) for --test."""
    mask_classes: AnyPath | None = None
    """What the grey levels of the label maps mean: a file of VALUE NAME lines, or coco-stuff-27."""

    group("measurements")
    metrics: tuple[str, ...] | None = None
    """What to measure in each run, as in `evaluate`; only an experiment that draws samples can measure them (default:
    knn linear rank, or what the experiment of --paper has)."""

    group("diffusion models")
    latent: AnyPath | None = None
    """Folder of the autoencoder, for diffusion models in latent space."""
    extractor: str | None = None
    """With --paper: feature extractor for samples, as in `evaluate` (default: a network trained on
    DATA; at scale paper there is none)."""
    reference: str | None = None
    """Of diffusion experiments: what samples are compared with: train, test, or an .npz file of statistics."""

    group("machine")
    accumulate: int | None = None
    """Gradient accumulation in every training, fine-tuning included: micro-batches per step and process."""
    workers: int | None = None
    """Threads that prepare batches ahead, in every training."""
    launcher: str | None = None
    """Program that starts every training and every `sample`, such as "torchrun --nproc-per-node 8"; `-m echoless --`
    and the command are appended."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, xpu or mps."""
    jobs: int | None = None
    """Number of runs at a time (default: on this machine one per core, or 1 with a GPU or --launcher; all of them on
    Slurm and Ray). On this machine every one has its own GPU or an equal share of the cores."""
    on: Literal["local", "slurm", "ray"] = "local"
    """Where the runs are trained: on this machine, as Slurm jobs (by submitit), or as Ray tasks on an existing or a
    local cluster. They write into --out, which all machines must see (extra: cluster)."""
    slurm_options: tuple[str, ...] = ()
    """With --on slurm: options of sbatch as KEY=VALUE (partition=gpu time=12:00:00 gres=gpu:1); cluster=local tries it
    on this machine."""
    ray_options: tuple[str, ...] = ()
    """With --on ray: what a run needs, as KEY=VALUE (num_gpus=1 num_cpus=8)."""
    print: bool = False
    """Print one line per run instead of running them. The lines may run anywhere, in any order and at the same time.
    Afterwards, the same command without --print collects the results; what is finished is not started again."""

    def __post_init__(self) -> None:
        require_measurements(self.metrics or (), of_samples=self.paper is not None)
        for name, where in (("slurm_options", "slurm"), ("ray_options", "ray")):
            given = getattr(self, name)
            require(not given or self.on == where, name, " ".join(given), f"only with --on {where}")
        require(not self.print or self.on == "local", "on", self.on, "not with --print, whose lines run by themselves")
