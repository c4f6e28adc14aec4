"""How is the probe of He et al. 2022 trained? On random crops that pass through the frozen encoder every epoch."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from echoless.config.metrics import Metric
from echoless.data import AugmentConfig, Batch, Images, Loader
from echoless.data.cache import in_parallel
from echoless.data.reading import natural_filter
from echoless.errors import DataError
from echoless.evaluation.encoder import Encoder
from echoless.evaluation.extract import FeatureSet, Report, View
from echoless.measures import accuracy_interval, mae_probe
from echoless.randomness import generator_for
from echoless.runtime.machine import usable_cores
from echoless.runtime.sharing import from_process, rank_and_world

AT_ONCE = 64  # images in the encoder; a few times as many are prepared ahead by each thread
MOST_THREADS = 16  # that prepare crops: each of them holds pieces of a batch
LARGEST_BATCH = 16_384  # the published one; the learning rate is scaled to what is used


def mae_linear(
    encoder: Encoder,
    train: Images,
    test: FeatureSet,
    *,
    view: View,
    seed: int,
    epochs: int,
    workers: int | None = None,
    report: Report | None = None,
    **protocol: Any,
) -> Metric:
    """Batch norm without affine, LARS; the test images are not augmented."""
    if train.labels is None or test.labels_N is None:
        raise DataError("the mae probe needs labels for --train and --test")
    batch_size = min(LARGEST_BATCH, train.usable)
    steps = max(1, train.usable // batch_size)
    threads = min(MOST_THREADS, max(2, usable_cores())) if workers is None else workers
    crops = _Crops(encoder, train, view, batch_size=batch_size, steps=steps, seed=seed, workers=threads)

    def batches_of_epoch(epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in crops.of_epoch(epoch):
            if report is not None:
                report(epoch + 1, epochs)
            yield batch

    trained = mae_probe(
        batches_of_epoch,
        steps_per_epoch=steps,
        dim=test.features_ND.shape[1],
        classes=int(train.labels.max()) + 1,
        batch_size=batch_size,
        generator=generator_for(seed, "probe", 3),
        epochs=epochs,
    )
    correct = trained.predict(test.features_ND) == test.labels_N
    drawn = generator_for(seed, "probe", 1_000_000)
    value, low, high = accuracy_interval(correct, generator=drawn, groups_N=test.groups_N)
    described = {**protocol, "layer": view.layer, "pooling": view.pooling, "probe": "mae", "epochs": epochs}
    described |= {"batch_size": batch_size, "train_n": train.usable, "seed": seed}
    return Metric(metric="linear", value=value, n=len(correct), interval=(low, high), protocol=described)


class _Crops:
    """Features and labels of random crops of the training images, other ones in every epoch.

    A batch passes through the encoder in pieces, each a slice of the global batch with its own draws, and never is as
    a whole: the images of a published batch take 10 GB, their features 50 MB. Several processes compute pieces in turn.
    """

    def __init__(
        self, encoder: Encoder, images: Images, view: View, *, batch_size: int, steps: int, seed: int, workers: int
    ) -> None:
        self.encoder, self.view, self.steps, self.workers = encoder, view, steps, workers
        world = -(-batch_size // AT_ONCE)
        self.pieces = [
            Loader(
                images,
                size=encoder.image_size,
                batch_size=batch_size,
                seed=seed,
                mean=encoder.mean,
                std=encoder.std,
                augment=AugmentConfig(scale=(0.08, 1.0), interpolation=natural_filter(images), cut_to_fit=True),
                rank=rank,
                world=world,
            )
            for rank in range(world)
        ]

    def of_epoch(self, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        rank, world = rank_and_world()
        steps = range(epoch * self.steps, (epoch + 1) * self.steps)
        work = ((step, piece) for step in steps for piece in self.pieces[rank::world])
        batches = in_parallel(lambda pair: pair[1].batch(pair[0]), work, self.workers)
        for _ in steps:
            own = [self._features(next(batches)) for _ in self.pieces[rank::world]]
            features, labels = ([each[place] for each in own] for place in (0, 1))
            yield self._of_all(features, torch.float32), self._of_all(labels, torch.int64)

    def _of_all(self, own: list[Tensor], dtype: torch.dtype) -> Tensor:
        """The pieces of all processes, in order; piece n is of process n modulo their number."""
        _, world = rank_and_world()
        places = (divmod(number, world) for number in range(len(self.pieces)))
        return torch.cat([from_process(source, partial(own.__getitem__, turn), dtype) for turn, source in places])

    def _features(self, batch: Batch) -> tuple[Tensor, Tensor]:
        assert batch.labels_B is not None
        tokens = self.encoder.tokens(batch.images_BCHW, [self.view.layer])[self.view.layer]
        return self.encoder.pool(tokens, self.view.pooling).float().cpu(), batch.labels_B
