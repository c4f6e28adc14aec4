"""What is the config of a run? Everything that determines its results, in one frozen dataclass; no torch.

`RUN/config.json` is this value with every "auto" resolved, so that a run can be repeated from it alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from echoless.config.body import with_body
from echoless.config.checks import require, require_number, require_one_of, require_whole
from echoless.config.diffusion import DiffusionConfig, FlowConfig, SiTConfig, UViTConfig
from echoless.config.masked import MaskedConfig
from echoless.config.model import MAEConfig
from echoless.config.selfsupervised import DINOConfig, DistillationConfig, InfoNCEConfig, MoCoConfig
from echoless.config.supervised import ClassifierConfig, SupervisedConfig
from echoless.config.views import ViewConfig

# Whatever can be trained. training/task.py says which pairs belong together.
ModelConfig = MAEConfig | ClassifierConfig | UViTConfig | SiTConfig | MoCoConfig | DINOConfig
ObjectiveConfig = MaskedConfig | SupervisedConfig | DiffusionConfig | FlowConfig | InfoNCEConfig | DistillationConfig
# What a config file may name, by `kind`; a model or an objective from outside is added here.
MODEL_CONFIGS: dict[str, type[Any]] = {config.kind: config for config in get_args(ModelConfig)}
OBJECTIVE_CONFIGS: dict[str, type[Any]] = {config.kind: config for config in get_args(ObjectiveConfig)}
Precision = Literal["fp32", "bf16"]
LatentPrecision = Literal["fp32", "fp16"]
Tracker = Literal["tensorboard", "wandb"]
Optimizer = Literal["adamw", "soap", "muon"]
Decay = Literal["cosine", "constant", "wsd"]
WeightDecayOn = Literal["matrices", "authors", "all"]
ClipBy = Literal["global", "parameter"]
Interpolation = Literal["bilinear", "bicubic"]
CacheSide = int | Literal["original"]
IMPORTED = "imported"  # in the place of a recipe: weights of another project that were converted


@dataclass(frozen=True, kw_only=True, slots=True)
class LatentConfig:
    """The autoencoder whose latents are trained on: (latent - shift) * scale."""

    path: str = ""
    fingerprint: str = ""  # of its config and weights; another one means other latents
    image_size: tuple[int, int] = (256, 256)  # of the images that are encoded
    scale: float = 1.0
    shift: float = 0.0
    precision: LatentPrecision = "fp32"  # in which latents are kept

    def __post_init__(self) -> None:
        for side in self.image_size:
            require_whole("image_size", side, 1)
        require_one_of("latent_precision", self.precision, get_args(LatentPrecision))
        require_number("scale", self.scale, 0, 1e6, ends="(]")
        require_number("shift", self.shift, -1e6, 1e6)


@dataclass(frozen=True, kw_only=True, slots=True)
class DataConfig:
    """Which images, and how they reach the model."""

    path: str = ""
    labels: str | None = None
    classes: str | None = None  # the list of the classes that are used; None: all
    channels: int | None = None  # what every image is converted to, where that was asked for
    fingerprint: str = ""  # of the content; another one means other images
    label_fingerprint: str = ""  # of the labels, where they are trained on
    count: int = 1
    mean: tuple[float, ...] = ()  # per channel, measured once or given
    std: tuple[float, ...] = ()
    # Share of the area that a random crop keeps; None: no crop but the centre, as in evaluation.
    crop_scale: tuple[float, float] | None = (0.2, 1.0)
    flip: float = 0.5
    interpolation: Interpolation = "bilinear"  # of crops; bicubic where the images are large (He et al. 2022)
    # Short side at which larger images are kept; None: 256, bilinear, as in runs of earlier versions.
    cache_side: CacheSide | None = None
    tiles: int | None = None  # side of the squares that files are cut into; None: whole images
    latent: LatentConfig | None = None  # None: pixels

    def __post_init__(self) -> None:
        require_whole("count", self.count, 1)
        if self.crop_scale is not None:
            low, high = self.crop_scale
            require(0 < low <= high <= 1, "crop_scale", self.crop_scale, "two numbers, 0 < low <= high <= 1")
        require_number("flip", self.flip, 0, 1)
        require_one_of("interpolation", self.interpolation, get_args(Interpolation))
        if self.cache_side not in (None, "original"):
            require_whole("cache_side", self.cache_side, 1)
        if self.tiles is not None:
            require_whole("tiles", self.tiles, 1)


@dataclass(frozen=True, kw_only=True, slots=True)
class OptimConfig:
    """Optimiser and learning-rate schedule. The peak rate is base_lr * batch_size / 256."""

    name: Optimizer = "adamw"
    base_lr: float = 1.5e-4
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.05
    weight_decay_end: float | None = None  # reached by half a cosine over the run (DINO); None: constant
    # "matrices": no biases, norms, tokens or learned alphas. "authors": tokens and learned alphas too, as in the code
    # of He et al. 2022 and of arXiv:2404.10947, where they have several axes. "all": every parameter, as in U-ViT's.
    weight_decay_on: WeightDecayOn = "matrices"
    warmup: float = 0.05  # share of the run
    decay: Decay = "cosine"
    min_lr: float = 0.0  # at the end of the decay; not scaled by the batch size
    clip: float | None = 1.0  # largest norm of the gradient
    clip_by: ClipBy = "global"  # of the whole gradient, or of every parameter's own (DINO)
    layer_decay: float | None = None  # learning rate of a layer relative to the next deeper one (fine-tuning)
    ema: float | None = None  # decay of an exponential moving average of the weights

    def __post_init__(self) -> None:
        require_one_of("optimizer", self.name, get_args(Optimizer))
        require_number("base_lr", self.base_lr, 0, 1e3)
        for beta in self.betas:
            require_number("betas", beta, 0, 1, ends="[)")
        require_number("weight_decay", self.weight_decay, 0, 1e3)
        if self.weight_decay_end is not None:
            require_number("weight_decay_end", self.weight_decay_end, 0, 1e3)
        require_one_of("weight_decay_on", self.weight_decay_on, get_args(WeightDecayOn))
        require_number("warmup", self.warmup, 0, 1)
        require_one_of("decay", self.decay, get_args(Decay))
        require_number("min_lr", self.min_lr, 0, 1e3)
        require_one_of("clip_by", self.clip_by, get_args(ClipBy))
        if self.clip is not None:
            require_number("clip", self.clip, 0, 1e9, ends="(]")
        if self.layer_decay is not None:
            require_number("layer_decay", self.layer_decay, 0, 1, ends="(]")
        if self.ema is not None:
            require_number("ema", self.ema, 0, 1, ends="()")


@dataclass(frozen=True, kw_only=True, slots=True)
class BudgetConfig:
    """The time that the length of a run was planned for. Recorded only: a resumed run keeps its length."""

    seconds: float
    images_per_second: float  # as measured when the run was planned

    def __post_init__(self) -> None:
        require_number("seconds", self.seconds, 0, 1e9, ends="(]")
        require_number("images_per_second", self.images_per_second, 0, 1e12, ends="(]")


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """A whole run."""

    recipe: str = "mae-tiny"
    model: ModelConfig = field(default_factory=MAEConfig, metadata={"kinds": MODEL_CONFIGS})
    objective: ObjectiveConfig = field(default_factory=MaskedConfig, metadata={"kinds": OBJECTIVE_CONFIGS})
    data: DataConfig = field(default_factory=DataConfig)
    optim: OptimConfig = field(default_factory=OptimConfig)
    steps: int = 1000
    batch_size: int = 128  # over all processes and accumulated pieces
    accumulate: int = 1  # pieces into which a process cuts its part of a batch
    seed: int = 0
    precision: Precision = "fp32"
    compile: bool = False
    fade_in: float | None = None  # share of the run in which every alpha moves from 1 to its target; None: none
    budget: BudgetConfig | None = None  # where --time or the default of auto decided the length

    def __post_init__(self) -> None:
        require_whole("steps", self.steps, 1, 99_999_999)
        require_whole("batch_size", self.batch_size, 1)
        require_whole("accumulate", self.accumulate, 1, self.batch_size)
        require_whole("seed", self.seed, 0)
        require_one_of("precision", self.precision, get_args(Precision))
        if self.fade_in is not None:
            require_number("fade_in", self.fade_in, 0, 1, ends="(]")
            variant = self.model.body.shortcuts.variant
            only = f"none with variant {variant}, whose alphas do not move; it needs variant faded"
            require(variant in ("faded", "identity"), "fade_in", self.fade_in, only)
        if getattr(self.objective, "whole_batch", False):
            kind = self.objective.kind
            whole = f"1 with {kind}, which compares the samples of a whole batch"
            require(self.accumulate == 1, "accumulate", self.accumulate, whole)
            require(
                self.batch_size >= 2, "batch_size", self.batch_size, f"2 or more with {kind}: one sample has no other"
            )

    @property
    def views(self) -> tuple[ViewConfig, ...]:
        """The views of every image if the objective compares several; else none."""
        make: Callable[..., tuple[ViewConfig, ...]] | None = getattr(self.objective, "views", None)
        return () if make is None else make(self.model.body, self.data.crop_scale or (1.0, 1.0), self.data.flip)


# A ramp of alpha_min moves every alpha of every schedule on a straight line: alphas are affine in alpha_min.
def model_after(config: RunConfig, step: int) -> Any:
    """The model's config with the shortcuts that it has after `step` updates; during a ramp, alpha_min is above its
    target."""
    body: Any = config.model.body
    if is_faded_in(config, step) or body.shortcuts.variant != "faded":
        return config.model
    assert config.fade_in is not None
    share, target = step / (config.fade_in * config.steps), body.shortcuts.alpha_min
    reached = replace(body.shortcuts, alpha_min=(1 - share) + share * target)
    return with_body(config.model, replace(body, shortcuts=reached))


def is_faded_in(config: RunConfig, step: int) -> bool:
    """Whether the alphas stand at their targets after `step` updates."""
    return config.fade_in is None or step >= config.fade_in * config.steps


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeConfig:
    """Settings that do not change the results: where and how a run executes."""

    workers: int = 2
    device: str = "auto"
    checkpoint_every: int | None = None  # steps; default: every 5 % of the run, at most 1000
    snapshot_every: int | None = None  # steps between encoder-only snapshots that are kept; default: none
    snapshots: int | None = None  # or their number over the run
    log_every: int | None = None  # steps between lines of metrics.jsonl; default: about 500 lines a run
    keep: int = 2
    strict: bool = False  # refuse to resume where a guarantee would be lost
    shard: bool = False  # divide weights, gradients and optimiser state among the processes
    checkpoint_activations: bool = False  # recompute the activations of a block in the backward pass
    track: tuple[Tracker, ...] = ()  # where else the numbers of metrics.jsonl go
    probe_every: int | None = None  # steps between measurements of the features; default: none

    def __post_init__(self) -> None:
        require_whole("workers", self.workers, 0, 64)
        for tracker in self.track:
            require_one_of("track", tracker, get_args(Tracker))
        for name in ("checkpoint_every", "snapshot_every", "snapshots", "log_every", "probe_every"):
            if getattr(self, name) is not None:
                require_whole(name, getattr(self, name), 1)
        require_whole("keep", self.keep, 2)
        both = self.snapshots is not None and self.snapshot_every is not None
        require(not both, "snapshots", self.snapshots, "either snapshots or snapshot_every, not both")


def started_by(recipe: object) -> str:
    """The verb that starts and resumes runs of this recipe."""
    return "finetune" if recipe == "finetune" else "pretrain"


def trained_by(recipe: object) -> str:
    """The verb that trained the weights of such a run; empty where they were trained elsewhere and imported."""
    return "" if recipe == IMPORTED else started_by(recipe)
