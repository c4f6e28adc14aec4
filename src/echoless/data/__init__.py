"""Images from disk to normalised batches.

The order to read it in: `opening` (what DATA may be), `sources` and its kinds (`parquet`, `shards`, `arrays`),
`encoded` and `tiling` (whole images or tiles, by number), `decode` (bytes to pixels), `cache` (pixels that stay) with
`eviction` (and how long), `order` (which samples a step sees), `augment`, `resizing` and `resample` (pixels to model
input, large and small), `rand_augment` (for classifiers), `views` (several of one image), `loader` (batches ahead of
time), `latents` (of an autoencoder, cached), `synthetic` (the built-in set).
"""

from echoless.data.augment import AugmentConfig, augment, resize_and_crop
from echoless.data.cache import default_cache_dir
from echoless.data.images import BadSample, Images, Shape
from echoless.data.latents import LatentLoader, Latents, cached_latents
from echoless.data.loader import Batch, Loader, evaluation_batches, plain_images
from echoless.data.opening import open_images
from echoless.data.order import batch_indices, epoch_order, rank_slice
from echoless.data.statistics import Statistics, measure_statistics
from echoless.data.synthetic import Shapes
from echoless.data.views import draw_views, make_view

__all__ = [
    "AugmentConfig",
    "BadSample",
    "Batch",
    "Images",
    "LatentLoader",
    "Latents",
    "Loader",
    "Shape",
    "Shapes",
    "Statistics",
    "augment",
    "batch_indices",
    "cached_latents",
    "default_cache_dir",
    "draw_views",
    "epoch_order",
    "evaluation_batches",
    "make_view",
    "measure_statistics",
    "open_images",
    "plain_images",
    "rank_slice",
    "resize_and_crop",
]
