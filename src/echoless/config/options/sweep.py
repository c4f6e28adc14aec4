"""Which arguments does `sweep` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.metrics import require_measurements
from echoless.config.options.fields import AnyPath, group


@dataclass(frozen=True)
class SweepOptions:
    """Train and measure a grid of runs, or an experiment of the papers, and compare them over seeds.

    Estimates the time first. If it is stopped or killed, repeat the command to continue; finished runs are skipped. A
    failed run is reported and the others go on. Prints a table and writes DIR/sweep.csv and DIR/report.html.
    """

    EXAMPLES = (
        "echoless sweep PHOTOS --alpha-min 1.0 0.8 0.6 --seeds 3 --out SWEEP",
        "echoless sweep PHOTOS --paper table3b --scale tiny --out TABLE",
    )

    data: AnyPath
    """A folder of images, parquet, tar shards, .npz, or `shapes`; accuracy needs labels."""
    _: KW_ONLY
    out: AnyPath
    """Output folder, with one sub-folder per run."""
    alpha_min: tuple[float, ...] | None = None
    """Values of alpha_min to try; 1 is a standard residual network (default: 1.0 0.9 0.8 0.7 0.6)."""
    seeds: int = 3
    """Number of seeds per setting: 0, 1, ..."""
    over: tuple[str, ...] = ()
    """Further pretrain settings as NAME=VALUE,VALUE: several values are varied, a single one is fixed for all runs
    (variant=faded,identity depth=6,12 base_lr=1e-3)."""
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
    test: AnyPath | None = None
    """Images to test on (default: five-fold cross-validation on DATA)."""
    labels: AnyPath | None = None
    """A CSV file (path,label) for DATA."""
    test_labels: AnyPath | None = None
    """A CSV file (path,label) for --test."""
    classes: AnyPath | None = None
    """Use only these classes of DATA and --test: a file with one class name per line, or imagenet100."""
    masks: AnyPath | None = None
    """Folder of label maps (PNG) for DATA, for spectral and segprobe."""
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
    """With --paper: feature extractor for samples, as in `evaluate` (default: a network trained on DATA)."""
    reference: str | None = None
    """Of diffusion experiments: what samples are compared with: train, test, or an .npz file of statistics."""

    group("machine")
    accumulate: int | None = None
    """Gradient accumulation in every training, fine-tuning included: micro-batches per step and process."""
    workers: int | None = None
    """Threads that prepare batches ahead, in every training."""
    launcher: str | None = None
    """Program that starts every training, such as "torchrun --nproc-per-node 8"; `-m echoless ...` is appended."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, xpu or mps."""
    jobs: int = 1
    """Number of runs at a time; they share the cores. On a CPU, small networks train faster that way."""
    print: bool = False
    """Print the commands, one line per run, instead of running them (for a cluster). The lines may run in any order and
    at the same time. Afterwards, the same command without --print collects the results."""

    def __post_init__(self) -> None:
        require_measurements(self.metrics or (), of_samples=self.paper is not None)
