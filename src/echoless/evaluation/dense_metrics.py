"""How good are patch features? Object discovery and a segmentation probe, where the images have masks."""

from __future__ import annotations

from echoless.config.metrics import Metric
from echoless.evaluation import dense
from echoless.evaluation.bench import Bench, Subject
from echoless.evaluation.encoder import Encoder


def check(bench: Bench) -> None:
    for images in (bench.train, bench.judged):
        dense.check_masks(bench.encoder, images)


def tokencut(subject: Subject) -> list[Metric]:
    """CorLoc and the mean overlap of masks, on the images that judge."""
    bench, encoder = subject.bench, _encoder(subject)
    return list(
        dense.tokencut(
            encoder,
            bench.judged,
            layer=_layer(subject, encoder),
            count=bench.options.images,
            seed=bench.options.seed,
            **subject.described,
        )
    )


def segprobe(subject: Subject) -> list[Metric]:
    """mIoU of a linear probe on patch features."""
    bench, encoder = subject.bench, _encoder(subject)
    return [
        dense.segprobe(
            encoder,
            bench.train,
            bench.test,
            layer=_layer(subject, encoder),
            count=bench.options.images,
            seed=bench.options.seed,
            **subject.described,
        )
    ]


def _encoder(subject: Subject) -> Encoder:
    """Raw pixels mean those of the patch here."""
    return dense.raw_patches(subject.bench.encoder) if subject.name == "raw pixels" else subject.encoder


def _layer(subject: Subject, encoder: Encoder) -> str:
    return encoder.default_layer if subject.name == "raw pixels" else subject.view.layer
