"""How good are the features while a run trains? `--probe-every N --probe-data LABELLED`: kNN and the quick probe.

The numbers are those that `evaluate` gives for a snapshot of the same step, on a part of the images where there are
many. The weights are copied first, and no random draw is shared with training, so that a run computes the same with it
and without. What it costs is part of every record.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from echoless.config import RunConfig
from echoless.config.options import PretrainOptions
from echoless.config.options.fields import path_text
from echoless.data import Images
from echoless.data.reading import leave_out_unlabelled, read_images
from echoless.data.resizing import BY_SIZE
from echoless.data.subset import draw_images
from echoless.errors import DataError
from echoless.evaluation.classify import fold_count, knn, linear
from echoless.evaluation.extract import View, extract
from echoless.evaluation.frozen import load
from echoless.runs.weights import save_weights

MOST = 2000  # images: a few seconds with a small encoder
NEIGHBOURS = 20


class Probe:
    """Called by the training loop with the encoder as `training.state.encoder_of` gives it."""

    def __init__(self, images: Images, device: str, *, latent: str | None = None, seed: int = 0) -> None:
        self.images, self.device, self.latent, self.seed = images, device, latent, seed

    def __call__(
        self, tensors: Mapping[str, Tensor], config: Mapping[str, Any], shortcuts: Mapping[str, Any]
    ) -> dict[str, float]:
        """kNN and linear accuracy in folds, and the seconds that both took."""
        begun = time.perf_counter()
        with tempfile.TemporaryDirectory(prefix="echoless-probe-") as folder:
            save_weights(Path(folder) / "encoder", tensors, config, shortcuts)
            encoder = load(Path(folder) / "encoder", device=self.device, latent=self.latent)
            view = View(encoder.default_layer, encoder.default_pooling)
            features = extract(encoder, self.images, [view], cache=None)[view]
        (nearest,) = knn(features, None, ks=[NEIGHBOURS], seed=self.seed)
        probed = linear(features, None, probe="quick", seed=self.seed)
        seconds = time.perf_counter() - begun
        return {"probe_knn": nearest.value, "probe_linear": probed.value, "probe_seconds": seconds}


def open_probe(options: PretrainOptions, config: RunConfig, device: str, trained_on: Images) -> Probe | None:
    """None where no probe is asked for; refuses images that cannot be told apart by class."""
    if options.probe_every is None:
        return None
    size = config.model.image_size if config.data.latent is None else config.data.latent.image_size
    images = read_images(
        str(options.probe_data),
        path_text(options.probe_labels),
        trained_on.shape.channels,
        reduction=BY_SIZE.reduction(size),
        which="--probe-data",
        like=trained_on,
        needed=True,
    )
    if images.labels is None:
        raise DataError("--probe-data has no labels; give sub-folders as classes, or --probe-labels FILE.csv")
    leave_out_unlabelled(images)
    if images.usable > MOST:
        kept = set(draw_images(images, MOST, seed=0))
        images.leave_out([index for index in images.usable_ids().tolist() if index not in kept])
    fold_count(images.labels[images.usable_ids()], images.groups_of(images.usable_ids()))
    return Probe(images, device, latent=path_text(options.latent))
