"""Which measurements are pictures? Spectral maps with their mIoU, reconstructions and t-SNE, as PNGs."""

from __future__ import annotations

import torch

from echoless.config.metrics import Metric
from echoless.data import plain_images
from echoless.data.subset import draw_rows
from echoless.evaluation.context import Evaluation, FeatureSource
from echoless.evaluation.reconstruct import reconstruct
from echoless.evaluation.segment import spectral_maps
from echoless.evaluation.stored_patches import stored_for
from echoless.reports import pictures
from echoless.reports.maps import save_map

SHOWN = 12  # images in a picture
MAPPED = 2000  # images on a map


def check_spectral(evaluation: Evaluation) -> None:
    layer = FeatureSource(evaluation, "trained", evaluation.encoder).view.layer
    stored_for(evaluation.stored, evaluation.encoder, evaluation.test_or_train, [layer])


def measure_spectral(source: FeatureSource) -> list[Metric]:
    """Top three eigenvectors as RGB; the mIoU of their clusters where the images have masks."""
    evaluation = source.evaluation
    if source.encoder.grid is None:
        return []
    maps = spectral_maps(
        source.encoder,
        evaluation.test_or_train,
        layers=[source.view.layer],
        count=evaluation.options.images,
        seed=evaluation.options.seed,
        stored=evaluation.stored,
        **source.dense_protocol,
    )
    title = f"top three eigenvectors as RGB, {source.name}"
    shown = {"images": maps.images_ICHW[:SHOWN], title: maps.rgb_I3hw[:SHOWN]}
    if maps.clusters_IHW is not None and maps.truth_IHW is not None:
        both = torch.cat([maps.clusters_IHW[:SHOWN], maps.truth_IHW[:SHOWN]])
        both += int(evaluation.test_or_train.label_maps is not None)  # grey is 0: the background, or no class
        segments, truth = pictures.labels_as_colours(both).chunk(2)
        shown |= {"segments, matched to the classes": segments, "true masks": truth}
    evaluation.say(f"written: {pictures.rows(evaluation.figures / f'spectral-{source.name}.png', shown)}")
    return list(maps.metrics)


def draw_reconstructions(source: FeatureSource) -> list[Metric]:
    evaluation = source.evaluation
    if evaluation.run is None:
        evaluation.say("reconstruct needs a run with its decoder: left out")
        return []
    result = reconstruct(evaluation.run, evaluation.test_or_train, count=SHOWN, seed=evaluation.options.seed)
    undone = " (normalised pixels undone with the true mean and spread of each hidden patch)"
    titled = {
        "ground truth": result.truth,
        "masked": result.masked,
        f"reconstruction{undone if result.true_statistics else ''}": result.reconstructed,
    }
    evaluation.say(f"written: {pictures.rows(evaluation.figures / 'reconstructions.png', titled)}")
    return []


def draw_tsne(source: FeatureSource) -> list[Metric]:
    """A map in two dimensions as a picture, and as points with their images and neighbours for the report."""
    from echoless.measures import tsne_map
    from echoless.reports.plots import scatter

    evaluation, view = source.evaluation, source.view
    features = source.test_or_train[view]
    rows = draw_rows(len(features.ids_N), MAPPED, features.labels_N, seed=evaluation.options.seed)
    vectors, ids = torch.from_numpy(features.features_ND[rows.numpy()]), features.ids_N[rows].tolist()
    labels = None if features.labels_N is None else features.labels_N[rows]
    points = tsne_map(vectors, seed=evaluation.options.seed)
    save_map(
        evaluation.figures,
        points,
        vectors,
        images_NCHW=plain_images(evaluation.test_or_train, ids, source.encoder.image_size),
        labels_N=labels,
        class_names=evaluation.test_or_train.class_names,
        names=[evaluation.test_or_train.paths[index] for index in ids],
        about=f"{len(points)} images, layer {view.layer}, {view.pooling} pooling, seed {evaluation.options.seed}",
        root=evaluation.test_or_train.folder,
    )
    evaluation.say(
        f"written: {scatter(evaluation.figures / 'tsne.png', points, labels, evaluation.test_or_train.class_names)}"
    )
    return []
