"""Measurements as pure functions on tensors, one protocol per file. Random ones take a generator or a seed."""

from echoless.measures.frechet import (
    Moments,
    MomentsAccumulator,
    PrecisionRecall,
    frechet_distance,
    frechet_interval,
    inception_score,
    moments,
    precision_recall,
)
from echoless.measures.intervals import (
    ConfidenceInterval,
    accuracy_interval,
    bootstrap_interval,
    mean_interval,
    pearson_interval,
    sign_flip_test,
)
from echoless.measures.knn import accuracy, knn_classify, memory_estimate, nearest_neighbours, weighted_vote
from echoless.measures.neighbourhood import (
    duplicate_groups,
    nearest_in_blocks,
    nearest_others,
    outlier_scores,
    separating_threshold,
    without_self,
)
from echoless.measures.probe import (
    LARS,
    LinearProbe,
    imagenet100_probe,
    mae_probe,
    quick_probe,
    shuffled_batches,
)
from echoless.measures.projection import principal_plane
from echoless.measures.rank import pearson, rank_centered, rank_paper, rankme
from echoless.measures.segmentation import (
    Segmentation,
    cluster_tokens,
    confusion_matrix,
    hungarian_miou,
    labelled_miou,
    many_to_one_miou,
    upsample_labels,
)
from echoless.measures.segprobe import confusion_per_image, fit_segmentation_probe, patch_classes, segment
from echoless.measures.singular_values import (
    Extremes,
    diagonal_attention,
    extreme_singular_values,
    lanczos_singular_values,
)
from echoless.measures.spectral import (
    SpectralEmbedding,
    affinity_graph,
    maps_to_vectors,
    spectral_embedding,
    stochastic_embedding,
    to_rgb,
)
from echoless.measures.splits import stratified_folds
from echoless.measures.tokencut import (
    bounding_boxes,
    box_iou,
    discover_objects,
    mask_iou,
    patch_graph,
    second_eigenvectors,
)
from echoless.measures.tsne import tsne_map
from echoless.measures.whitening import whitened

__all__ = [
    "LARS",
    "ConfidenceInterval",
    "Extremes",
    "LinearProbe",
    "Moments",
    "MomentsAccumulator",
    "PrecisionRecall",
    "Segmentation",
    "SpectralEmbedding",
    "accuracy",
    "accuracy_interval",
    "affinity_graph",
    "bootstrap_interval",
    "bounding_boxes",
    "box_iou",
    "cluster_tokens",
    "confusion_matrix",
    "confusion_per_image",
    "diagonal_attention",
    "discover_objects",
    "duplicate_groups",
    "extreme_singular_values",
    "fit_segmentation_probe",
    "frechet_distance",
    "frechet_interval",
    "hungarian_miou",
    "imagenet100_probe",
    "inception_score",
    "knn_classify",
    "labelled_miou",
    "lanczos_singular_values",
    "mae_probe",
    "many_to_one_miou",
    "maps_to_vectors",
    "mask_iou",
    "mean_interval",
    "memory_estimate",
    "moments",
    "nearest_in_blocks",
    "nearest_neighbours",
    "nearest_others",
    "outlier_scores",
    "patch_classes",
    "patch_graph",
    "pearson",
    "pearson_interval",
    "precision_recall",
    "principal_plane",
    "quick_probe",
    "rank_centered",
    "rank_paper",
    "rankme",
    "second_eigenvectors",
    "segment",
    "separating_threshold",
    "shuffled_batches",
    "sign_flip_test",
    "spectral_embedding",
    "stochastic_embedding",
    "stratified_folds",
    "to_rgb",
    "tsne_map",
    "upsample_labels",
    "weighted_vote",
    "whitened",
    "without_self",
]
