"""Proves that `shapes` is deterministic, balanced, masked, and tells its classes by shape alone."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import ndimage

from echoless.config.shapes import SPLITS
from echoless.data.synthetic import CLASS_NAMES, Shapes, parse_shapes
from echoless.errors import DataError


def test_an_image_depends_on_its_number_alone() -> None:
    shapes = Shapes(count=100)
    images, masks = shapes.draw(np.arange(100))
    for ids in ([7], [99, 3, 7], [*range(50, 90)]):
        again, again_masks = Shapes(count=1000).draw(np.array(ids))
        assert np.array_equal(again, images[ids]) and np.array_equal(again_masks, masks[ids])
    assert images.dtype == np.uint8 and images.shape == (100, 3, 32, 32) and masks.shape == (100, 32, 32)


def test_seeds_and_splits_share_no_image() -> None:
    seen = {
        image.tobytes()
        for split in SPLITS
        for seed in (0, 1)
        for image in Shapes(split=split, seed=seed).draw(np.arange(50))[0]
    }
    assert len(seen) == 50 * len(SPLITS) * 2


@pytest.mark.parametrize("size", [24, 32, 64])
def test_masks_have_the_topology_of_their_class(size: int) -> None:
    """One piece each, a hole in every ring and in nothing else, counted by scipy."""
    _, masks = Shapes(size=size).draw(np.arange(400))
    for index, mask in enumerate(masks):
        name = CLASS_NAMES[index % 10]
        pieces, count = ndimage.label(mask, np.ones((3, 3)))
        largest = np.bincount(pieces[pieces > 0]).max() / mask.sum()
        # The waist of a bow-tie may be thinner than a pixel, and the tips of a crescent may fray.
        assert count == 1 or (name == "bow-tie" and count == 2) or (name == "crescent" and largest > 0.9)
        assert ndimage.label(~np.pad(mask, 1))[1] - 1 == (name == "ring")
        assert 0.02 < mask.mean() < 0.5


def test_colours_say_nothing_about_the_class() -> None:
    """A linear classifier on the mean colours of shape and ground does no better than chance."""
    from sklearn.linear_model import LogisticRegression

    shapes = Shapes(count=4000)
    images, masks = shapes.draw(np.arange(4000))
    weights = masks[:, None].astype(float)
    front = (images * weights).sum((2, 3)) / weights.sum((2, 3))
    back = (images * (1 - weights)).sum((2, 3)) / (1 - weights).sum((2, 3))
    features, labels = np.hstack([front, back]) / 255, shapes.labels()
    score = LogisticRegression(max_iter=500).fit(features[:3000], labels[:3000]).score(features[3000:], labels[3000:])
    print(f"shapes: linear on the six mean colours = {score:.3f} (chance 0.100)")
    assert score < 0.14


def test_raw_pixel_neighbours_stay_below_a_fifth() -> None:
    """k = 20, cosine, weighted by exp(similarity / 0.07), on the held-out stream; scikit-learn's neighbours."""
    from sklearn.neighbors import NearestNeighbors

    train, test = Shapes(count=10_000), Shapes(count=1000, split="test")
    bank, queries = (s.draw(np.arange(len(s)))[0].reshape(len(s), -1).astype(np.float32) for s in (train, test))
    search = NearestNeighbors(n_neighbors=20, metric="cosine", algorithm="brute").fit(bank)
    distance, neighbours = search.kneighbors(queries)
    votes = np.zeros((1000, 10))
    for vote, ids, weight in zip(votes, neighbours, np.exp((1 - distance) / 0.07)):
        np.add.at(vote, train.labels()[ids], weight)
    score = (votes.argmax(1) == test.labels()).mean()
    print(f"shapes: raw-pixel kNN of 10,000 on 1,000 held out = {score:.3f} (must stay below 0.20)")
    assert score < 0.2


def test_areas_say_little_about_the_class() -> None:
    _, masks = Shapes(size=64).draw(np.arange(4000))
    areas = masks.mean((1, 2)).reshape(-1, 10).mean(0)
    assert areas.max() / areas.min() < 1.25


def test_names_are_parsed_and_mistakes_explained() -> None:
    assert parse_shapes("shapes") == Shapes()
    assert parse_shapes("shapes:7@test") == Shapes(count=7, split="test")
    assert parse_shapes("shapes@validation") == Shapes(split="validation")
    assert parse_shapes("shapes-of-mine") is None
    for name in ("shapes:0", "shapes:x", "shapes@holdout", "shapes:5@"):
        with pytest.raises(DataError, match="allowed: shapes"):
            parse_shapes(name)
