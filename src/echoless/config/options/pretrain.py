"""Which arguments does `pretrain` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.model import Decoder, Fade, InitScheme, Per, Schedule, Taps, Variant
from echoless.config.options.fields import AnyPath, group
from echoless.config.training import CacheSide, Decay, LatentPrecision, Optimizer, Precision, Tracker, WeightDecayOn


@dataclass(frozen=True)
class PretrainOptions:
    """Pretrain an encoder or a diffusion model with fading shortcuts on a folder of images.

    Writes the trained encoder to RUN/encoder and the training metrics to RUN/metrics.jsonl. Stop it with Ctrl-C or
    SIGTERM at any time (exit code 130) and continue with --resume. Settings that are not given come from the run being
    resumed, else from the recipe, else from the data. "The paper" is arXiv:2404.10947.
    """

    EXAMPLES = (
        "echoless pretrain PHOTOS --out RUN --time 3h",
        "echoless pretrain PHOTOS --out RUN --recipe mae-small --epochs 200 --alpha-min 0.6",
    )

    data: AnyPath | None = None
    """A folder of images (nested or flat), a .parquet file or folder of them, .tar shards, .npz, or `shapes`; parquet
    and tar also at an address, such as 's3://BUCKET/*.tar'. With --resume or --config it may be left out: the images
    are those of the recorded run."""
    _: KW_ONLY
    out: AnyPath
    """Run folder to create."""
    recipe: str | None = None
    """Named settings: auto (default), mae-tiny, mae-base, uvit-tiny, sit-tiny, ...; `echoless recipes` lists them."""
    time: str | None = None
    """Time to train for, such as 45m, 3h or 1h30m: the recipe auto fits the encoder and the length to it, other masked
    autoencoders the length (default: 1h with auto on a CPU)."""
    epochs: float | None = None
    """Number of epochs (default: from the recipe)."""
    max_steps: int | None = None
    """Number of training steps, instead of --epochs; also the length of the learning-rate schedule."""
    batch_size: int | None = None
    """Images per step, over all processes and micro-batches."""
    alpha_min: float | Literal["auto"] | None = None
    """Coefficient of the last identity shortcut: 1 is a standard residual network; the paper's best are 0.6 to 0.7."""
    seed: int | None = None
    """Random seed of data order, crops, masks and initial weights (default: 0)."""
    resume: bool = False
    """Continue the run in --out exactly where it stopped. Settings that are not given keep their recorded values."""
    new_data: bool = False
    """With --resume: go on with other images than those of the run, which are refused without it."""
    overwrite: bool = False
    """Replace the run in --out."""
    config: AnyPath | None = None
    """Repeat a run: RUN/config.json of another run. Settings that are given replace the recorded ones."""
    init: AnyPath | None = None
    """Start from these weights: a run, an encoder folder, a checkpoint file, or a folder of transformers (DINOv2,
    DINOv3, ViT, ViTMAE, DeiT, BEiT, I-JEPA). The encoder is theirs; without --recipe they are continued as a masked
    autoencoder (recipe continue)."""

    group("images and labels")
    image_size: tuple[int, ...] | None = None
    """Input size: one number, or height and width; multiples of the patch size (default: from the data)."""
    channels: int | None = None
    """Number of channels to convert every image to (default: as most images have)."""
    labels: AnyPath | None = None
    """Labels: a CSV or parquet file (path,label), `none` to ignore sub-folders, or a text file with one label per line
    in the order of the names, as `LC_ALL=C ls` sorts; path,label is safer (default: sub-folders, if any)."""
    classes: AnyPath | None = None
    """Use only these classes: a file with one class name per line, or imagenet100."""
    crop_scale: tuple[float, float] | None = None
    """Smallest and largest area of a random resized crop, as a fraction of the image."""
    mean: tuple[float, ...] | None = None
    """Mean of each channel, for pixels in 0..1, by which images are normalised (default: that of the images)."""
    std: tuple[float, ...] | None = None
    """Standard deviation of each channel (default: as for --mean)."""
    cache: Literal["auto", "on", "off"] | None = None
    """Cache decoded images on disk, so that later epochs skip decoding (default: auto, if there is room)."""
    cache_side: CacheSide | None = None
    """Short side at which larger images are kept in the cache, or `original`: crops are cut from that (default:
    original for the recipes of the papers, three times the input size for the others)."""
    tiles: int | None = None
    """Cut every image file into square tiles of this side and train on those (microscopy, satellite, panoramas)."""
    max_bad_fraction: float | None = None
    """Stop before training if more than this fraction of the images is unusable (default: 0.01)."""

    group("shortcuts")
    variant: Variant | None = None
    """Shortcut variant: faded, or a baseline."""
    schedule: Schedule | None = None
    """How alpha falls with depth."""
    per: Per | None = None
    """One alpha per sub-layer (the authors' code) or per block (equation 5)."""
    fade: Fade | None = None
    """Which shortcuts to fade."""
    fade_in: float | None = None
    """Fade gradually: share of the run in which every alpha moves from 1 to its target, in equal steps (default: the
    alphas stand from the first step). With --init, the weights of a plain network are taken as they are."""

    group("network")
    patch_size: int | None = None
    """Patch height and width in pixels."""
    depth: int | None = None
    """Number of encoder blocks."""
    width: int | None = None
    """Encoder width; the width of a head stays the same."""
    zero_init: bool | None = None
    """Initialise the last linear layer of every branch to zero (default: with long skips)."""
    init_scheme: InitScheme | None = None
    """Initialisation of a ViT: default, or skipless, meant for --variant none (arXiv:2510.00345)."""

    group("masked autoencoders")
    decoder: Decoder | None = None
    """Decoder type: long_skips (the paper) or plain (He et al. 2022)."""
    decoder_depth: int | None = None
    """Number of decoder blocks."""
    mask_ratio: float | None = None
    """Fraction of patches that is masked."""
    normalize_pixels: bool | None = None
    """Predict each patch normalised to zero mean and unit variance."""

    group("diffusion models")
    conditional: bool | None = None
    """Train a class-conditional diffusion model (default: if the data has labels)."""
    label_dropout: float | None = None
    """Probability of dropping the label (classifier-free guidance)."""
    latent: AnyPath | None = None
    """Train a diffusion model in latent space: folder of a diffusers AutoencoderKL or AutoencoderTiny."""
    latent_precision: LatentPrecision | None = None
    """Precision in which latents are cached; fp16 takes half the disk (default: fp32)."""
    long_skips: bool | None = None
    """Long skips between the halves of a SiT, as in arXiv:2404.10947 (the published SiT has none)."""

    group("supervised training")
    test: AnyPath | None = None
    """Labelled images on which a supervised run is tested after every epoch."""
    test_labels: AnyPath | None = None
    """A CSV file (path,label) for --test."""
    label_smoothing: float | None = None
    """Label smoothing."""
    mixup: float | None = None
    """Beta parameter of mixup; 0 turns it off."""
    cutmix: float | None = None
    """Beta parameter of cutmix; 0 turns it off."""
    erase: float | None = None
    """Probability of random erasing (a rectangle is replaced by noise)."""
    rand_augment: float | None = None
    """Magnitude of RandAugment, up to 10, as in timm's rand-m9-mstd0.5-inc1; 0 turns it off."""
    drop_path: float | None = None
    """Drop-path rate of the last block; not available with --variant none."""

    group("optimiser")
    optimizer: Optimizer | None = None
    """Optimiser: adamw, soap or muon. The learning rate stays the recipe's, so give --base-lr too."""
    base_lr: float | None = None
    """Learning rate for a batch of 256; scales with the batch size."""
    weight_decay: float | None = None
    """Weight decay."""
    weight_decay_on: WeightDecayOn | None = None
    """Parameters with weight decay: matrices, authors (tokens and learned alphas too), or all (default: from the
    recipe)."""
    weight_decay_end: float | None = None
    """Weight decay at the end of the run, reached by a cosine (default: constant, but in dino-small)."""
    min_lr: float | None = None
    """Learning rate at the end of the decay (default: 0, but in dino-small)."""
    warmup: float | None = None
    """Fraction of the run with learning-rate warm-up."""
    decay: Decay | None = None
    """Learning rate after the warm-up: cosine to --min-lr, constant, or wsd (constant, then linear to --min-lr)."""
    clip: float | None = None
    """Gradient clipping: largest gradient norm."""
    ema: float | None = None
    """Decay of an exponential moving average of the weights."""

    group("saving and continuing")
    checkpoint_every: int | None = None
    """Steps between checkpoints (default: 5 % of the run, at most 1000)."""
    snapshot_every: int | None = None
    """Steps between encoder-only snapshots, which are kept for evaluation over training."""
    snapshots: int | None = None
    """Number of encoder-only snapshots, evenly spaced over the run, instead of --snapshot-every."""
    log_every: int | None = None
    """Steps between lines of metrics.jsonl (default: about 500 lines a run)."""
    requeue: bool = False
    """Exit with code 75 when stopped by a signal, so that a scheduler restarts the command."""
    track: tuple[Tracker, ...] | None = None
    """Also send the numbers of metrics.jsonl to tensorboard (extra: tracking; in RUN/tensorboard) or wandb (extra:
    wandb; WANDB_MODE=offline writes to RUN/wandb and sends nothing)."""
    probe_every: int | None = None
    """Measure kNN and a quick linear probe on --probe-data every so many steps, into metrics.jsonl. Each record has its
    cost in seconds; the run computes the same without it."""
    probe_data: AnyPath | None = None
    """Labelled images of --probe-every; of more than 2,000, a stratified draw is used."""
    probe_labels: AnyPath | None = None
    """A CSV file (path,label) for --probe-data."""

    group("machine")
    accumulate: int | None = None
    """Gradient accumulation: micro-batches per step and process (default: 1). Does not change the result."""
    precision: Literal["auto"] | Precision | None = None
    """fp32, bf16, or auto (default): bf16 on GPUs that have it, else fp32."""
    compile: bool | None = None
    """Compile the training step with torch.compile (default: on a GPU, if the run is long enough to gain from it)."""
    shard: bool | None = None
    """Divide weights, gradients and optimiser state among the processes of torchrun (FSDP2; adamw only). Does not
    change the result."""
    checkpoint_activations: bool | None = None
    """Recompute the activations of every block in the backward pass: less memory, a third more computation. Does not
    change the result."""
    workers: int | None = None
    """Threads that prepare batches ahead (default: 2)."""
    device: str | None = None
    """auto (default), cpu, cuda, cuda:N, xpu or mps."""

    group("rarely needed")
    taps: Taps | None = None
    """Encoder blocks that feed the long skips if the decoder has too few blocks for every second one: spread evenly
    (default), or the deepest (authors: as in the code of arXiv:2404.10947; depth 18 and 24 differ)."""
    init_constants: tuple[float, float, float] | None = None
    """Constants alpha, beta and c of the skipless initialisation (default: 2 0.6 3, published for ViT-B)."""
    third_stage: int | None = None
    """Number of blocks in a ResNet's third stage: 2 is ResNet-18, 10 gives 16 blocks in all."""
    wait: bool = False
    """If another process is training in --out, wait until it ends instead of refusing."""
    strict: bool = False
    """With --resume: refuse if bitwise equality is lost (other threads, torch version, world size, settings)."""
