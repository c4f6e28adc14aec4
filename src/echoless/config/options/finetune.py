"""Which arguments does `finetune` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.options.fields import AnyPath
from echoless.config.training import Precision


@dataclass(frozen=True)
class FinetuneOptions:
    """Train the whole network on labels, starting from a pretrained encoder.

    The defaults are those of He et al. 2022 for ViT-B: layer-wise learning rates, drop path, mixup and cutmix, label
    smoothing, random erasing. Accuracy on --test after every epoch goes to metrics.jsonl, the final one with its
    interval to results.json.
    """

    run: AnyPath
    """A complete run, or an encoder folder."""
    _: KW_ONLY
    train: AnyPath
    """Labelled images to learn from."""
    test: AnyPath
    """Labelled images to measure the accuracy on."""
    out: AnyPath
    """The run folder to create."""

    epochs: float | None = None
    """Passes over --train (default: 100)."""
    max_steps: int | None = None
    """Length of the run in steps, instead of epochs."""
    batch_size: int | None = None
    """Images per step (default: 1024, or an eighth of a smaller set)."""
    accumulate: int | None = None
    """Cut each process's part of a batch into this many pieces, to fit memory (default: 1)."""
    base_lr: float | None = None
    """Learning rate per 256 images (default: 5e-4)."""
    layer_decay: float | None = None
    """Learning rate of a layer relative to the next deeper one (default: 0.65)."""
    weight_decay: float | None = None
    """Weight decay, on matrices only (default: 0.05)."""
    warmup: float | None = None
    """Share of the run in which the learning rate rises (default: 0.05)."""
    drop_path: float | None = None
    """Probability of dropping the deepest branches; it falls to 0 towards the first (default: 0.1)."""
    mixup: float | None = None
    """Parameter of mixup; 0 turns it off (default: 0.8)."""
    cutmix: float | None = None
    """Parameter of cutmix; 0 turns it off (default: 1)."""
    label_smoothing: float | None = None
    """Share of a label that is spread over all classes (default: 0.1)."""
    erase: float | None = None
    """Probability that a rectangle of an image is erased (default: 0.25)."""
    pooling: Literal["patch_mean", "cls"] | None = None
    """What the head reads (default: patch_mean)."""
    labels: AnyPath | None = None
    """A CSV file (path,label) for --train."""
    test_labels: AnyPath | None = None
    """A CSV file (path,label) for --test."""
    seed: int | None = None
    """Decides every draw (default: 0)."""
    precision: Precision | None = None
    """fp32 or bf16 (default: fp32)."""
    compile: bool | None = None
    """torch.compile the step (default: no)."""
    workers: int | None = None
    """Threads that prepare batches ahead (default: 2)."""
    device: str | None = None
    """auto (default), cpu, cuda or cuda:N."""
    checkpoint_every: int | None = None
    """Steps between checkpoints (default: 5 % of the run, at most 1000)."""
    resume: bool = False
    """Continue the run in --out exactly where it stopped; settings that are not given keep their recorded values."""
    overwrite: bool = False
    """Replace the run in --out."""
