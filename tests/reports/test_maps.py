"""The map of a run holds every point, its image and its nearest neighbours, as scikit-learn finds them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.spatial.distance import pdist
from sklearn.neighbors import NearestNeighbors

from echoless.reports.maps import NEIGHBOURS, neighbours, save_map
from echoless.reports.payload import LOWEST_FRAME, in_frame
from echoless.reports.pictures import labels_as_colours, tiles


def test_neighbours_are_those_of_scikit_learn(generator):
    features = torch.randn(1500, 8, generator=generator)
    found = neighbours(features, 5).numpy()
    search = NearestNeighbors(n_neighbors=6, metric="cosine", algorithm="brute").fit(features.double().numpy())
    assert (found == search.kneighbors(features.double().numpy(), return_distance=False)[:, 1:]).all()


def test_the_image_of_a_point_is_its_tile(tmp_path):
    count = 11
    levels = torch.linspace(0, 1, count)[:, None, None, None].expand(count, 3, 8, 16)
    points = torch.arange(2 * count, dtype=torch.float32).view(count, 2)
    save_map(
        tmp_path,
        points,
        torch.randn(count, 4),
        images_NCHW=levels,
        labels_N=torch.arange(count) % 3,
        class_names=("a", "b", "c"),
        names=[f"{'x' * 300}/{index}" for index in range(count)],
        about="",
        root=tmp_path / "photos" / ".." / "photos",
    )
    record = json.loads((tmp_path / "tsne.json").read_text())
    with Image.open(tmp_path / "tsne-images.jpg") as picture:
        sheet = np.asarray(picture.convert("L"), dtype=float)
    width, height = record["tile"]
    assert (width, height) == (16, 8) and len(record["neighbours"]) == NEIGHBOURS * count
    for index in range(count):
        top, left = index // record["columns"] * height, index % record["columns"] * width
        assert abs(sheet[top : top + height, left : left + width].mean() - 255 * float(levels[index, 0, 0, 0])) < 6
    assert record["root"] == str(tmp_path / "photos")
    assert record["y"] == points[:, 1].tolist() and max(map(len, record["names"])) <= 120


def test_a_map_fills_its_frame_and_keeps_its_proportions(generator):
    """Half of a square was empty. Turning, moving and one scale for both axes leave all ratios of distances."""
    line, angle = torch.randn(300, 2, generator=generator).double() * torch.tensor([9.0, 4.0]), math.radians(50)
    turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()
    points = (line @ turn).numpy()
    placed, height = in_frame(points)
    ratios = pdist(placed) / pdist(points)
    assert np.ptp(ratios) < 1e-9 * ratios.mean()
    np.testing.assert_allclose(np.ptp(placed, axis=0), (1, height))
    np.testing.assert_allclose(placed.min(axis=0), 0, atol=1e-12)
    assert height < 0.6, "the frame follows the shape of the map"
    assert np.linalg.det(np.linalg.lstsq(points - points.mean(0), placed - placed.mean(0))[0]) < 0, "only y is mirrored"


@pytest.mark.parametrize("points", [np.zeros((4, 2)), np.arange(8.0).reshape(4, 2)], ids=["a point", "a line"])
def test_a_map_without_an_area_has_a_frame(points):
    placed, height = in_frame(points)
    assert height == LOWEST_FRAME and (placed >= 0).all() and (placed[:, 0] <= 1).all()
    np.testing.assert_allclose(placed[:, 1], height / 2)


def test_sheets_have_room_for_every_picture():
    sheet = tiles(torch.rand(7, 1, 4, 4), columns=3, side=8, gap=2)
    assert sheet.size == (3 * 10 - 2, 3 * 10 - 2)


def test_the_background_of_a_mask_is_grey_and_every_class_has_its_own_colour():
    colours = labels_as_colours(torch.arange(11).view(1, 1, 11))
    assert colours[0, :, 0, 0].unique().numel() == 1
    assert len({tuple(colours[0, :, 0, i].tolist()) for i in range(11)}) == 11
