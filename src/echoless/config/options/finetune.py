"""What may be asked of `finetune`?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from echoless.config.training import Precision


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
    """Probability that a rectangle of an image is replaced by noise per pixel (random erasing)."""
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
    """Continue the run in --out exactly where it stopped; settings that are not given are what they were."""
    overwrite: bool = False
    """Replace the run in --out."""
