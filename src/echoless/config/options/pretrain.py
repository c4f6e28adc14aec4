"""Which arguments does `pretrain` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.model import Decoder, Fade, InitScheme, Per, Schedule, Variant
from echoless.config.options.fields import AnyPath
from echoless.config.training import Decay, Optimizer, Precision


@dataclass(frozen=True)
class PretrainOptions:
    """Pretrain an encoder or a diffusion model with fading shortcuts on a folder of images.

    The result is RUN/encoder, a frozen feature extractor; RUN/metrics.jsonl records how training went. Stop it with
    Ctrl-C or SIGTERM at any time, continue with --resume. A setting that is not given comes from the run to be resumed,
    else from the recipe, else from the data.
    """

    data: AnyPath
    """A folder of images (nested or flat), a .parquet file or folder of them, .tar shards, .npz, or `shapes`."""
    _: KW_ONLY
    out: AnyPath
    """The run folder to create."""
    recipe: str | None = None
    """Named settings: auto (default), mae-tiny, mae-base, uvit-tiny, sit-tiny, ...; `echoless recipes` lists them."""
    epochs: float | None = None
    """Passes over the images (default: the recipe's)."""
    max_steps: int | None = None
    """Length of the run and of its learning-rate schedule in steps, instead of epochs."""
    batch_size: int | None = None
    """Images per step, over all processes and accumulated pieces."""
    accumulate: int | None = None
    """Cut each process's part of a batch into this many pieces, to fit memory (default: 1). Same result."""
    image_size: tuple[int, ...] | None = None
    """One number, or height and width; multiples of the patch size (default: the data's own)."""
    patch_size: int | None = None
    """Side of a patch in pixels."""
    channels: int | None = None
    """Channels that every image is converted to (default: what most images have)."""
    labels: AnyPath | None = None
    """A CSV file (path,label) that gives labels to a flat folder; pretraining itself needs none."""

    alpha_min: float | Literal["auto"] | None = None
    """Weight of the last identity shortcut: 1 is a standard residual network, 0.6 to 0.7 the paper's best."""
    variant: Variant | None = None
    """Kind of shortcut: faded, or one of the named baselines."""
    schedule: Schedule | None = None
    """How alpha falls with depth."""
    per: Per | None = None
    """One alpha per sub-layer (the authors' code) or per block (equation 5)."""
    fade: Fade | None = None
    """Which shortcuts fade."""
    depth: int | None = None
    """Blocks of the encoder."""
    width: int | None = None
    """Width of the encoder; its heads keep their size."""
    zero_init: bool | None = None
    """Start the last linear of every branch at zero (default: with long skips)."""
    decoder: Decoder | None = None
    """long_skips (the paper) or plain (He et al. 2022)."""
    decoder_depth: int | None = None
    """Blocks of the decoder."""
    mask_ratio: float | None = None
    """Share of the patches that is hidden."""
    normalize_pixels: bool | None = None
    """Predict each patch brought to zero mean and unit variance."""

    conditional: bool | None = None
    """Train a diffusion model with class labels (default: where the data has labels)."""
    label_dropout: float | None = None
    """Probability of dropping the label (classifier-free guidance)."""
    latent: AnyPath | None = None
    """Train a diffusion model on latents: the folder of an AutoencoderKL or AutoencoderTiny of diffusers."""
    long_skips: bool | None = None
    """Long skips between the halves of a SiT, as in arXiv:2404.10947 (the published SiT has none)."""

    init_scheme: InitScheme | None = None
    """How a ViT starts: default, or skipless, for --variant none (arXiv:2510.00345)."""
    init_constants: tuple[float, float, float] | None = None
    """Alpha, beta and c of the skipless start (default: 2 0.6 3, published for ViT-B)."""
    third_stage: int | None = None
    """Blocks of a ResNet's third stage: 2 is ResNet-18, 10 has 16 blocks in all."""
    test: AnyPath | None = None
    """Labelled images on which a supervised run is judged after every epoch."""
    test_labels: AnyPath | None = None
    """A CSV file (path,label) for --test."""
    label_smoothing: float | None = None
    """Share of a label that is spread over all classes."""
    mixup: float | None = None
    """Parameter of mixup in supervised training; 0 turns it off."""
    cutmix: float | None = None
    """Parameter of cutmix; 0 turns it off."""
    erase: float | None = None
    """Probability that a rectangle of an image is replaced by noise per pixel (random erasing)."""
    drop_path: float | None = None
    """Probability of dropping the deepest branches; 0 where there are no shortcuts."""

    optimizer: Optimizer | None = None
    """adamw, soap or muon. The learning rate stays the recipe's: give --base-lr too."""
    base_lr: float | None = None
    """Learning rate per 256 images."""
    weight_decay: float | None = None
    """Weight decay, on matrices only."""
    warmup: float | None = None
    """Share of the run in which the learning rate rises."""
    decay: Decay | None = None
    """Learning rate after the warm-up: cosine to zero, constant, or wsd (constant, then linear to zero)."""
    clip: float | None = None
    """Largest norm of the gradient."""
    ema: float | None = None
    """Decay of a moving average of the weights."""
    crop_scale: tuple[float, float] | None = None
    """Smallest and largest share of an image's area that a random crop keeps."""

    seed: int | None = None
    """Decides every draw: order, crops, masks, initial weights (default: 0)."""
    precision: Literal["auto"] | Precision | None = None
    """fp32, bf16, or auto (default): bf16 on GPUs that have it, else fp32."""
    compile: bool | None = None
    """torch.compile the step (default: on a GPU, where the run is long enough to pay for it)."""
    workers: int | None = None
    """Threads that prepare batches ahead (default: 2)."""
    device: str | None = None
    """auto (default), cpu, cuda or cuda:N."""
    checkpoint_every: int | None = None
    """Steps between checkpoints (default: 5 % of the run, at most 1000)."""
    snapshot_every: int | None = None
    """Steps between encoder-only snapshots that are kept, for measurements over training."""
    log_every: int | None = None
    """Steps between lines of metrics.jsonl (default: about 500 lines a run)."""
    resume: bool = False
    """Continue the run in --out exactly where it stopped. Settings that are not given keep their recorded values."""
    overwrite: bool = False
    """Replace the run in --out."""
    strict: bool = False
    """Refuse to resume where a guarantee would be lost (other threads, torch, world size, settings)."""
    requeue: bool = False
    """Exit with code 75 after a stop by signal, so that a scheduler starts the command again."""
    init: AnyPath | None = None
    """Start from the weights of this run or encoder folder."""
    cache: Literal["auto", "on", "off"] | None = None
    """Keep decoded images on disk, so that later epochs cost no decoding (default: auto, where there is room)."""
    max_bad_fraction: float | None = None
    """Stop before training when more than this share of the images cannot be used (default: 0.01)."""
    tensorboard: bool | None = None
    """Also write TensorBoard events (extra: tracking; default: no)."""
