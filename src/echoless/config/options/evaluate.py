"""Which arguments does `evaluate` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.checks import require_whole
from echoless.config.metrics import require_measurements
from echoless.config.options.fields import AnyPath


@dataclass(frozen=True)
class EvaluateOptions:
    """Measure frozen features: kNN, linear probe, effective rank, segmentation, maps.

    Every table has two more rows, raw pixels and the same encoder untrained, and every accuracy its 95 % bootstrap
    interval. Features are unmasked and deterministic, and cached: a second evaluation takes seconds.
    """

    run: AnyPath
    """A run, an encoder folder, a transformers folder, or timm:NAME."""
    _: KW_ONLY

    train: AnyPath | None = None
    """Images to learn from (default: the images of the run)."""
    test: AnyPath | None = None
    """Images to be judged on (default: five stratified folds of --train)."""
    labels: AnyPath | None = None
    """A CSV file (path,label) for --train."""
    test_labels: AnyPath | None = None
    """A CSV file (path,label) for --test."""
    metrics: tuple[str, ...] = ("knn", "linear", "rank")
    """What to measure: knn, linear, rank, spectral (maps of eigenvectors; with masks also mIoU), tokencut (object
    discovery), segprobe (segmentation probe), tsne, reconstruct, frechet, precision (with recall), inception-score.
    tokencut and segprobe need images with masks; the last three need --samples or --draw."""
    k: tuple[int, ...] = (20,)
    """Neighbours of the kNN classifier."""
    probe: tuple[Literal["quick", "imagenet100", "mae"], ...] = ("quick",)
    """Protocols of the linear probe."""
    layers: tuple[str, ...] = ("last",)
    """last, all, or names such as block07/+mlp. Of a diffusion model, last means five from the first to the last."""
    noise: tuple[float, ...] = ()
    """Levels at which a diffusion model is shown the images, 0 (none) to 1 (default: 0.02 0.05 0.1 0.2 0.4)."""
    latent: AnyPath | None = None
    """Where the autoencoder of a run on latents is now (default: its recorded path); another one is refused."""
    pooling: Literal["mean", "cls", "patch_mean"] = "mean"
    """How the tokens of an image become one vector: mean over all of them (the paper's), class token, patches."""
    samples: AnyPath | None = None
    """Generated images to compare with --test (else --train): a folder or an .npz file that `sample` wrote."""
    draw: int | None = None
    """Draw so many samples of a diffusion run instead, into RUN/samples."""
    steps: int = 20
    """Steps of the sampler with --draw."""
    extractor: str | None = None
    """What looks at them: a run, a folder of transformers, timm:NAME, or inception:FILE. Never chosen silently."""
    snapshots: bool = False
    """Measure every snapshot of the run too."""
    against: tuple[AnyPath, ...] = ()
    """With --snapshots: two or more other runs; prints how rank and accuracy correlate across all, at each snapshot."""
    baselines: bool = True
    """Also measure raw pixels and the same encoder untrained."""
    images: int = 200
    """Images of the spectral embedding, of tokencut, and of segprobe from each set."""
    seed: int = 0
    """Decides folds, probes and bootstrap draws."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    cache: bool = True
    """Keep features on disk, so that a second look takes seconds."""

    def __post_init__(self) -> None:
        require_whole("images", self.images, 1)
        require_measurements(self.metrics)
