"""Which arguments does `evaluate` take?"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

from echoless.config.checks import require, require_whole
from echoless.config.metrics import require_measurements
from echoless.config.options.fields import AnyPath, group

INCEPTION = "inception:"  # of --extractor, before the file of Inception-v3


@dataclass(frozen=True)
class EvaluateOptions:
    """Measure frozen features: kNN, linear probe, effective rank, segmentation, t-SNE.

    Every table includes two baselines, raw pixels and, of a run, the same encoder untrained; every accuracy has a 95 %
    bootstrap interval. Features are computed without masking, are deterministic, and are cached, so that a second
    evaluation takes seconds. Several processes (torchrun) share the images; the numbers are the same for any number of
    them.
    """

    EXAMPLES = (
        "echoless evaluate RUN --train PHOTOS --test HELD_OUT",
        "echoless evaluate RUN --layers all --metrics knn linear rank tsne",
    )

    run: AnyPath
    """A run, an encoder folder, a transformers folder, or timm:NAME."""
    _: KW_ONLY
    train: AnyPath | None = None
    """Images to train the classifiers on (default: the images of the run)."""
    test: AnyPath | None = None
    """Images to test on (default: five-fold cross-validation on --train)."""
    metrics: tuple[str, ...] = ("knn", "linear", "rank")
    """What to measure: knn, linear, rank, spectral (maps of eigenvectors; with masks also mIoU), tokencut (object
    discovery), segprobe (segmentation probe), tsne, neighbours (a gallery of a few queries), reconstruct, frechet,
    precision (with recall), inception-score. tokencut and segprobe need images with masks; the last three need
    --samples or --draw."""
    layers: tuple[str, ...] = ("last",)
    """Layers: last, all, or names such as block07/+mlp or norm. last is the final norm where there is one, else the
    last block; for a diffusion model, five across the depth."""

    group("images and labels")
    labels: AnyPath | None = None
    """Labels for --train: a CSV or parquet file (path,label), `none`, or a text file with one label per line in the
    order of the names, as `LC_ALL=C ls` sorts; path,label is safer. Metrics that need labels leave out
    images without one."""
    test_labels: AnyPath | None = None
    """The same for --test, also `none`."""
    classes: AnyPath | None = None
    """Use only these classes of --train and, if it has labels, --test: a file with one class name per line, or
    imagenet100 (default: as the run was trained, if --train is not given)."""
    masks: AnyPath | None = None
    """Folder of label maps for --train: PNG files named like the images, whose grey levels are classes."""
    test_masks: AnyPath | None = None
    """Folder of label maps for --test."""
    mask_classes: AnyPath | None = None
    """What the grey levels mean: a file of lines VALUE NAME, or coco-stuff-27 (default: each level is a class)."""
    mask_ignore: int = 255
    """Grey level that is no class, without --mask-classes."""
    tiles: int | None = None
    """Cut every image file into square tiles of this side (default: as the run was trained; 0: whole images)."""

    group("measurements")
    k: tuple[int, ...] = (20,)
    """Number of neighbours of the kNN classifier; several may be given."""
    probe: tuple[Literal["quick", "imagenet100", "mae"], ...] = ("quick",)
    """Linear probe protocols: quick (logistic regression), imagenet100 (arXiv:2404.10947: mean of all tokens), mae (He
    et al. 2022: normalised class token, random crops)."""
    pooling: Literal["mean", "cls", "patch_mean"] | None = None
    """Pooling into one vector: mean over all tokens (arXiv:2404.10947), class token, or mean over patch tokens.
    Default: class token for MoCo v3 and DINO, mean for the others; the probes imagenet100 and mae have their own."""
    snapshots: bool = False
    """Also measure every snapshot of the run."""
    against: tuple[AnyPath, ...] = ()
    """With --snapshots: two or more other runs. Correlates rank with accuracy across all runs, at each snapshot."""
    baselines: bool = True
    """Also measure raw pixels and the same encoder untrained."""
    tokencut: Literal["keys", "outputs"] = "keys"
    """What TokenCut compares: the keys of the block's attention (its authors), or the tokens that the block gives."""
    images: int = 200
    """Number of images for spectral and tokencut, and of each set for segprobe."""
    patches: tuple[AnyPath, ...] = ()
    """Patch features of --train or --test that `embed --tokens` wrote with the same encoder: spectral, tokencut and
    segprobe read them instead of computing them. tokencut reads a layer such as block11/key."""

    group("generated images")
    samples: AnyPath | None = None
    """Generated images to compare with --reference: a folder or an .npz file that `sample` wrote."""
    reference: str | None = None
    """What samples are compared with: train, test, or an .npz file of mu and sigma, as the ADM suite has it (default:
    test if there is a --test, else train). Published FIDs use the training set."""
    draw: int | None = None
    """Instead of --samples: draw this many samples from a diffusion run into RUN/samples."""
    steps: int = 20
    """Number of sampler steps with --draw."""
    extractor: str | None = None
    """Feature extractor for samples: a run, a transformers folder, timm:NAME, or inception:FILE. No default."""

    group("diffusion models")
    noise: tuple[float, ...] = ()
    """Noise levels of the images given to a diffusion model, 0 (none) to 1 (default: 0.02 0.05 0.1 0.2 0.4)."""
    latent: AnyPath | None = None
    """Folder of the autoencoder used in training, for a latent-space run (default: the recorded path)."""

    group("machine")
    workers: int | None = None
    """Number of threads that prepare images, in each process (default: 2; for --probe mae one per core, up to 16)."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N, xpu or mps."""
    cache: bool = True
    """Cache features on disk, so that a second evaluation takes seconds."""

    group("rarely needed")
    seed: int = 0
    """Random seed of folds, probes and bootstrap."""

    def __post_init__(self) -> None:
        require_whole("images", self.images, 1)
        if self.workers is not None:
            require_whole("workers", self.workers, 0)
        require_measurements(self.metrics)
        reads_patches = bool({"spectral", "tokencut", "segprobe"} & set(self.metrics))
        require(
            not self.patches or reads_patches,
            "patches",
            ", ".join(map(str, self.patches)),
            "with spectral, tokencut or segprobe in --metrics, which read them",
        )
