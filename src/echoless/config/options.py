"""What may be asked of a verb? One frozen value per verb; the command line and the Python functions share them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from echoless.config.model import Decoder, Fade, Per, Schedule, Variant
from echoless.config.training import Decay, Optimizer, Precision


@dataclass(frozen=True, kw_only=True)
class PretrainOptions:
    """Settings of a pretraining run; what is not given comes from the recipe, and there from the data."""

    recipe: str = "auto"
    """auto, mae-tiny, mae-small, mae-base, mae-large, cifar10, shapes: `echoless recipes` explains each."""
    epochs: float | None = None
    """Passes over the images (default: the recipe's)."""
    max_steps: int | None = None
    """Length of the run and of its learning-rate schedule in steps, instead of epochs."""
    batch_size: int | None = None
    """Images per step, over all processes and accumulated pieces."""
    accumulate: int = 1
    """Cut each process's part of a batch into this many pieces, to fit memory. The result is the same."""
    image_size: tuple[int, ...] | None = None
    """One number, or height and width; multiples of the patch size (default: the data's own)."""
    patch_size: int | None = None
    """Side of a patch in pixels."""
    channels: int | None = None
    """Channels that every image is converted to (default: what most images have)."""
    labels: str | None = None
    """A CSV file (path,label) that gives labels to a flat folder; pretraining itself needs none."""

    alpha_min: float | Literal["auto"] | None = None
    """Weight of the last identity shortcut: 1 is a standard residual network, 0.6 to 0.7 the paper's best."""
    variant: Variant | None = None
    """How the stream passes a shortcut: faded, or one of the named baselines."""
    schedule: Schedule | None = None
    """How alpha falls with depth."""
    per: Per | None = None
    """One alpha per sub-layer (the authors' code) or per block (equation 5)."""
    fade: Fade | None = None
    """Which shortcuts fade."""
    decoder: Decoder | None = None
    """long_skips (the paper) or plain (He et al. 2022)."""
    mask_ratio: float | None = None
    """Share of the patches that is hidden."""
    normalize_pixels: bool | None = None
    """Predict each patch brought to zero mean and unit variance."""

    optimizer: Optimizer | None = None
    """adamw, soap or muon."""
    base_lr: float | None = None
    """Learning rate per 256 images."""
    weight_decay: float | None = None
    """Weight decay, on matrices only."""
    warmup: float | None = None
    """Share of the run in which the learning rate rises."""
    decay: Decay | None = None
    """What follows the warm-up: cosine to zero, or constant."""
    clip: float | None = None
    """Largest norm of the gradient."""
    ema: float | None = None
    """Decay of a moving average of the weights."""
    crop_scale: tuple[float, float] | None = None
    """Smallest and largest share of an image's area that a random crop keeps."""

    seed: int = 0
    """Decides every draw: order, crops, masks, initial weights."""
    precision: Literal["auto"] | Precision = "auto"
    """fp32 or bf16; auto is bf16 on GPUs that have it, else fp32."""
    compile: bool | None = None
    """torch.compile the step (default: where the run is long enough to pay for it)."""
    workers: int = 2
    """Threads that prepare batches ahead."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    checkpoint_every: int | None = None
    """Steps between checkpoints (default: 5 % of the run, at most 1000)."""
    snapshot_every: int | None = None
    """Steps between encoder-only snapshots that are kept, for measurements over training."""
    log_every: int | None = None
    """Steps between lines of metrics.jsonl (default: about 500 lines a run)."""
    resume: bool = False
    """Continue the run in --out exactly where it stopped."""
    overwrite: bool = False
    """Replace the run in --out."""
    strict: bool = False
    """Refuse to resume where a guarantee would be lost (other threads, torch, world size, settings)."""
    requeue: bool = False
    """Exit with code 75 after a stop by signal, so that a scheduler starts the command again."""
    init: str | None = None
    """Start from the weights of this run or encoder folder."""
    cache: Literal["auto", "on", "off"] = "auto"
    """Keep decoded images on disk, so that later epochs cost no decoding."""
    max_bad_fraction: float = 0.01
    """Stop before training when more than this share of the images cannot be used."""
    tensorboard: bool = False
    """Also write TensorBoard events (extra: tracking)."""


@dataclass(frozen=True, kw_only=True)
class EvaluateOptions:
    """Settings of an evaluation; every number it prints carries its protocol."""

    train: str | None = None
    """Images to learn from (default: the images of the run)."""
    test: str | None = None
    """Images to be judged on (default: five stratified folds of --train)."""
    labels: str | None = None
    """A CSV file (path,label) for --train."""
    test_labels: str | None = None
    """A CSV file (path,label) for --test."""
    metrics: tuple[Literal["knn", "linear", "rank", "spectral", "tsne", "reconstruct"], ...] = ("knn", "linear", "rank")
    """What to measure."""
    k: tuple[int, ...] = (20,)
    """Neighbours of the kNN classifier."""
    probe: tuple[Literal["quick", "imagenet100", "mae"], ...] = ("quick",)
    """Protocols of the linear probe."""
    layers: tuple[str, ...] = ("last",)
    """last, all, or names such as block07/+mlp."""
    pooling: Literal["mean", "cls", "patch_mean"] = "mean"
    """How the tokens of an image become one vector: mean over all of them (the paper's), class token, patches."""
    snapshots: bool = False
    """Measure every snapshot of the run too."""
    baselines: bool = True
    """Also measure raw pixels and the same encoder untrained."""
    images: int = 200
    """Images of the spectral embedding."""
    seed: int = 0
    """Decides folds, probes and bootstrap draws."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    batch_size: int = 64
    """Accepted for symmetry; features are computed in chunks of 64, so that digits never depend on it."""
    cache: bool = True
    """Keep features on disk, so that a second look takes seconds."""


@dataclass(frozen=True, kw_only=True)
class EmbedOptions:
    """Settings of an embedding; the result does not depend on batch size or number of processes."""

    layer: str = "last"
    """last, or a name such as block07/+mlp."""
    pooling: Literal["mean", "cls", "patch_mean"] = "mean"
    """How the tokens of an image become one vector."""
    dtype: Literal["fp32", "fp16"] = "fp32"
    """Precision of the stored features."""
    labels: str | None = None
    """A CSV file (path,label) whose labels are stored too."""
    batch_size: int = 64
    """Accepted for symmetry; features are computed in chunks of 64, so that digits never depend on it."""
    seed: int = 0
    """Accepted for symmetry; nothing here is random."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    overwrite: bool = False
    """Replace the file in --out."""


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """What a foreign checkpoint does not say by itself."""

    alpha_min: float | None = None
    """Weight of the last identity shortcut in a checkpoint of the paper's authors, which does not carry it."""
    heads: int | None = None
    """Attention heads of the encoder (default: what published ViTs of that width have)."""
    decoder_heads: int | None = None
    """Attention heads of the decoder (default: 16 for width 512)."""
    image_size: tuple[int, ...] | None = None
    """Height and width the positions were made for (default: a square)."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, for pixels in 0..1 (default: the folder's own, else ImageNet's)."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel (default: likewise)."""


@dataclass(frozen=True, kw_only=True)
class InspectOptions:
    """How the shortcuts that are found would be faded."""

    alpha_min: float | Literal["auto"] = "auto"
    """Weight of the last identity shortcut."""
    schedule: Schedule = "linear"
    """How alpha falls with depth."""
    fade: Fade = "both"
    """Which shortcuts fade."""
    within: tuple[str, ...] | None = None
    """Only shortcuts in these modules: names, or patterns such as `encoder.layer.1?`."""


@dataclass(frozen=True, kw_only=True)
class FinetuneOptions:
    """Settings of a fine-tuning run; the defaults are those of He et al. 2022 for ViT-B."""

    epochs: float | None = None
    """Passes over --train (default: 100)."""
    max_steps: int | None = None
    """Length of the run in steps, instead of epochs."""
    batch_size: int | None = None
    """Images per step (default: 1024, or an eighth of a smaller set)."""
    accumulate: int = 1
    """Cut each process's part of a batch into this many pieces, to fit memory."""
    base_lr: float = 5e-4
    """Learning rate per 256 images."""
    layer_decay: float = 0.65
    """Learning rate of a layer relative to the next deeper one."""
    weight_decay: float = 0.05
    """Weight decay, on matrices only."""
    warmup: float = 0.05
    """Share of the run in which the learning rate rises."""
    drop_path: float = 0.1
    """Probability of dropping the deepest branches; it falls to 0 towards the first."""
    mixup: float = 0.8
    """Parameter of mixup; 0 turns it off."""
    cutmix: float = 1.0
    """Parameter of cutmix; 0 turns it off."""
    label_smoothing: float = 0.1
    """Share of a label that is spread over all classes."""
    erase: float = 0.25
    """Probability that a rectangle of an image is erased."""
    pooling: Literal["patch_mean", "cls"] = "patch_mean"
    """What the head reads."""
    labels: str | None = None
    """A CSV file (path,label) for --train."""
    test_labels: str | None = None
    """A CSV file (path,label) for --test."""
    seed: int = 0
    """Decides every draw."""
    precision: Precision = "fp32"
    """fp32 or bf16."""
    compile: bool = False
    """torch.compile the step."""
    workers: int = 2
    """Threads that prepare batches ahead."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    checkpoint_every: int | None = None
    """Steps between checkpoints."""
    resume: bool = False
    """Continue the run in --out exactly where it stopped."""
    overwrite: bool = False
    """Replace the run in --out."""
