"""Which arguments does `finetune` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath, group
from echoless.config.training import Precision, Tracker


@dataclass(frozen=True)
class FinetuneOptions:
    """Fine-tune all weights of a pretrained encoder on labelled images.

    The defaults are those of He et al. 2022, by the depth of the encoder: layer-wise learning rates, drop path,
    RandAugment, mixup and cutmix, label smoothing, random erasing, one norm after the mean of the patches. The accuracy
    on --test is recorded in metrics.jsonl after every epoch, and at the end in results.json with its interval.
    """

    EXAMPLES = (
        "echoless finetune RUN --train PHOTOS --test HELD_OUT --out TUNED",
        "echoless finetune RUN --train PHOTOS --test HELD_OUT --out TUNED --epochs 20 --labels labels.csv",
    )

    run: AnyPath
    """A complete run, an encoder folder, or a folder of transformers (DINOv2, DINOv3, ViT, DeiT, BEiT, I-JEPA)."""
    _: KW_ONLY
    train: AnyPath
    """Labelled images to train on."""
    test: AnyPath
    """Labelled images to measure the accuracy on."""
    out: AnyPath
    """Run folder to create."""
    epochs: float | None = None
    """Number of epochs over --train (default: 100; 50 from depth 24 on)."""
    max_steps: int | None = None
    """Number of training steps, instead of --epochs."""
    batch_size: int | None = None
    """Images per step over all processes (default: 1024, or one eighth of --train if that is less)."""
    seed: int | None = None
    """Random seed (default: 0)."""
    resume: bool = False
    """Continue the run in --out exactly where it stopped. Settings that are not given keep their recorded values."""
    new_data: bool = False
    """With --resume: go on with other training images than those of the run, which are refused without it."""
    overwrite: bool = False
    """Replace the run in --out."""
    config: AnyPath | None = None
    """Take the settings from RUN/config.json of another fine-tuning. Those that are given replace the recorded ones."""

    group("images and labels")
    labels: AnyPath | None = None
    """A CSV file (path,label) for --train; or one label per line in the order of the names, as `LC_ALL=C ls` sorts;
    path,label is safer."""
    test_labels: AnyPath | None = None
    """The same for --test."""
    classes: AnyPath | None = None
    """Use only these classes of both: a file with one class name per line, or imagenet100."""

    group("network")
    pooling: Literal["patch_mean", "cls"] | None = None
    """Input of the linear head: mean over patch tokens, or class token (default: patch_mean)."""

    group("supervised training")
    drop_path: float | None = None
    """Drop-path rate of the last block; decreases linearly to 0 at the first (default: 0.1; 0.2 from depth 24 on,
    0.3 from 32)."""
    mixup: float | None = None
    """Beta parameter of mixup; 0 turns it off (default: 0.8)."""
    cutmix: float | None = None
    """Beta parameter of cutmix; 0 turns it off (default: 1)."""
    label_smoothing: float | None = None
    """Label smoothing (default: 0.1)."""
    erase: float | None = None
    """Probability of random erasing (default: 0.25)."""
    rand_augment: float | None = None
    """Magnitude of RandAugment, up to 10; 0 turns it off (default: 9, or 0 where images are not of 8 bits with one
    channel or three)."""

    group("optimiser")
    base_lr: float | None = None
    """Learning rate for a batch of 256; scales with the batch size (default: 5e-4; 1e-3 from depth 24
    on)."""
    layer_decay: float | None = None
    """Layer-wise learning-rate decay: rate of a layer relative to the next deeper one (default: 0.65; 0.75
    from depth 24 on)."""
    weight_decay: float | None = None
    """Weight decay, on matrices only (default: 0.05)."""
    warmup: float | None = None
    """Fraction of the run with learning-rate warm-up (default: 5 epochs: 0.05; 0.1 from depth 24 on)."""
    min_lr: float | None = None
    """Learning rate at the end of the cosine (default: 1e-6)."""

    group("saving and continuing")
    checkpoint_every: int | None = None
    """Steps between checkpoints (default: 5 % of the run, at most 1000)."""
    track: tuple[Tracker, ...] | None = None
    """Also send the numbers of metrics.jsonl to tensorboard (extra: tracking) or wandb (extra: wandb)."""

    group("machine")
    accumulate: int | None = None
    """Gradient accumulation: micro-batches per step and process (default: 1)."""
    precision: Precision | None = None
    """fp32 or bf16 (default: fp32)."""
    compile: bool | None = None
    """Compile the training step with torch.compile (default: no)."""
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
