"""What is looked at rather than read? PNGs of one encoder, with the numbers that go with them."""

from __future__ import annotations

import torch

from echoless.config.metrics import Metric
from echoless.data import plain_images
from echoless.evaluation.bench import Subject
from echoless.evaluation.reconstruct import reconstruct
from echoless.evaluation.segment import spectral_maps
from echoless.reports import pictures
from echoless.reports.maps import save_map

SHOWN = 12  # images in a picture
MAPPED = 2000  # images on a map


def spectral(subject: Subject) -> list[Metric]:
    """Top three eigenvectors as RGB; the mIoU of their clusters where the images have masks."""
    bench = subject.bench
    if subject.encoder.grid is None:
        return []
    maps = spectral_maps(
        subject.encoder,
        bench.judged,
        layers=[subject.view.layer],
        count=bench.options.images,
        seed=bench.options.seed,
        **subject.described,
    )
    title = f"top three eigenvectors as RGB, {subject.name}"
    shown = {"images": maps.images_ICHW[:SHOWN], title: maps.rgb_I3hw[:SHOWN]}
    if maps.clusters_IHW is not None and maps.truth_IHW is not None:
        shown["segments, matched to the classes"] = pictures.labels_as_colours(maps.clusters_IHW)[:SHOWN]
        shown["true masks"] = pictures.labels_as_colours(maps.truth_IHW)[:SHOWN]
    bench.say(f"written: {pictures.rows(bench.figures / f'spectral-{subject.name}.png', shown)}")
    return list(maps.metrics)


def reconstructions(subject: Subject) -> list[Metric]:
    bench = subject.bench
    if bench.run is None:
        bench.say("reconstruct needs a run with its decoder: left out")
        return []
    result = reconstruct(bench.run, bench.judged, count=SHOWN, seed=bench.options.seed)
    undone = " (normalised pixels undone with the true mean and spread of each hidden patch)"
    titled = {
        "ground truth": result.truth,
        "masked": result.masked,
        f"reconstruction{undone if result.true_statistics else ''}": result.reconstructed,
    }
    bench.say(f"written: {pictures.rows(bench.figures / 'reconstructions.png', titled)}")
    return []


def tsne(subject: Subject) -> list[Metric]:
    """A map in two dimensions as a picture, and as points with their images and neighbours for the report."""
    from echoless.measures import tsne_map
    from echoless.reports.plots import scatter

    bench, view = subject.bench, subject.view
    features = subject.judged[view]
    vectors, ids = torch.from_numpy(features.features_ND[:MAPPED].copy()), features.ids_N[:MAPPED].tolist()
    labels = None if features.labels_N is None else features.labels_N[:MAPPED]
    points = tsne_map(vectors, seed=bench.options.seed)
    save_map(
        bench.figures,
        points,
        vectors,
        images_NCHW=plain_images(bench.judged, ids, subject.encoder.image_size),
        labels_N=labels,
        class_names=bench.judged.class_names,
        names=[bench.judged.paths[index] for index in ids],
        about=f"{len(points)} images, layer {view.layer}, {view.pooling} pooling, seed {bench.options.seed}",
    )
    bench.say(f"written: {scatter(bench.figures / 'tsne.png', points, labels, bench.judged.class_names)}")
    return []
