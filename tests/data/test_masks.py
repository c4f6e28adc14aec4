"""Label maps: found by name, read as classes, and cropped exactly as Pillow crops, so that pixels meet their labels."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from echoless.data.masks import VOID, LabelMaps, MaskClasses
from echoless.data.resizing import BY_SIZE, DIFFUSION, WHOLE
from echoless.errors import DataError

LEVELS = np.random.default_rng(0).integers(0, 5, (30, 44), dtype=np.uint8)


def write(folder: Path, name: str, levels: np.ndarray = LEVELS, mode: str | None = None) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    image = Image.fromarray(levels)
    if mode == "P":
        image.putpalette([level for level in range(256) for _ in range(3)])
    image.save(folder / name)


def test_maps_are_found_by_relative_path_then_by_a_unique_name(tmp_path):
    write(tmp_path, "a/one.png")
    write(tmp_path, "b/one.png", LEVELS + 1)
    write(tmp_path, "deep/down/two.png", LEVELS + 2)
    maps = LabelMaps(tmp_path, ["a/one.jpg", "b/one.jpeg", "shard.tar/two.jpg"], MaskClasses.plain())
    assert [int(maps.read(index)[0, 0] - LEVELS[0, 0]) for index in range(3)] == [0, 1, 2]
    with pytest.raises(DataError, match=r"has no label map for 1 of 1 images, first 'c/one\.jpg'"):
        LabelMaps(tmp_path, ["c/one.jpg"], MaskClasses.plain())
    with pytest.raises(DataError, match="allowed: a folder of PNG label maps"):
        LabelMaps(tmp_path / "nowhere", [], MaskClasses.plain())


@pytest.mark.parametrize("mode", ["L", "P", "I;16"])
def test_grey_levels_palettes_and_16_bits_are_numbers_and_255_or_another_is_ignored(mode, tmp_path):
    levels = LEVELS.copy()
    levels[0, 0], levels[0, 1] = 255, 7
    write(tmp_path, "x.png", levels.astype(np.uint16) if mode == "I;16" else levels, mode)
    read = LabelMaps(tmp_path, ["x.jpg"], MaskClasses.plain()).read(0)
    assert read.dtype == np.int64 and read[0, 0] == VOID and np.array_equal(read[1:], levels[1:])
    other = LabelMaps(tmp_path, ["x.jpg"], MaskClasses.plain(7)).read(0)
    assert (other[0, 0], other[0, 1]) == (255, VOID)


def test_a_file_of_classes_joins_levels_and_ignores_the_rest(tmp_path):
    write(tmp_path, "x.png")
    (tmp_path / "classes.txt").write_text("# joined\n0 ground\n3 thing\n1 ground\n")
    classes = MaskClasses.read(tmp_path / "classes.txt")
    assert classes.names == ("ground", "thing")
    expected = np.select([LEVELS <= 1, LEVELS == 3], [0, 1], VOID)
    assert np.array_equal(LabelMaps(tmp_path, ["x.jpg"], classes).read(0), expected)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("7\n", "have the line '7'; allowed: VALUE NAME"),
        ("road 7\n", "allowed: VALUE NAME"),
        ("1 a\n1 b\n", "name the grey level 1 twice"),
        ("", "is empty"),
    ],
)
def test_a_file_of_classes_that_is_none_is_refused(text, says, tmp_path):
    (tmp_path / "classes.txt").write_text(text)
    with pytest.raises(DataError, match=says):
        MaskClasses.read(tmp_path / "classes.txt")


def test_coco_stuff_has_182_levels_in_27_classes():
    """Counts as published: 12 supercategories of things, 15 of stuff; 80 things among the first 91 levels."""
    classes = MaskClasses.read("coco-stuff-27")
    used = classes.class_of_level[:182]
    assert len(classes.names) == 27 and used.min() == 0 and set(used.tolist()) == set(range(27))
    assert (classes.class_of_level[182:] == VOID).all()
    of = [classes.names[number] for number in used]
    assert (of[0], of[1], of[15], of[156], of[181]) == ("person", "vehicle", "animal", "sky", "solid")
    assert len(set(of[:91])) == 12 and not set(of[:91]) & set(of[91:])


@pytest.mark.parametrize("size", [(15, 15), (30, 44), (10, 22), (40, 20)])
def test_the_view_is_pillows_centre_crop_by_nearest_neighbours(size, tmp_path):
    write(tmp_path, "x.png")
    maps = LabelMaps(tmp_path, ["x.jpg"], MaskClasses.plain())
    height, width = LEVELS.shape
    scale = min(height / size[0], width / size[1])
    top, left = (height - scale * size[0]) / 2, (width - scale * size[1]) / 2
    box = (left, top, left + scale * size[1], top + scale * size[0])
    expected = Image.fromarray(LEVELS).resize((size[1], size[0]), Image.Resampling.NEAREST, box=box)
    assert np.array_equal(maps.view(0, size, (60, 88)), np.asarray(expected)), "an image of twice the size"


@pytest.mark.parametrize("framing", [WHOLE, BY_SIZE, DIFFUSION, replace(WHOLE, kind="stretch")])
@pytest.mark.parametrize("shape", [(300, 440), (401, 260)])
def test_a_map_is_framed_as_its_large_image_is(framing, shape, tmp_path):
    """The image and the map hold the same coordinates: what the encoder sees of one is what it is told by the other."""
    down, across = (np.broadcast_to(axis, shape).astype(np.uint16) for axis in np.ogrid[: shape[0], : shape[1]])
    for name, coordinate in (("down", down), ("across", across)):
        write(tmp_path, f"{name}.png", coordinate)
        seen = framing.frame(coordinate[None], (224, 224))[0].astype(int)
        told = LabelMaps(tmp_path, [f"{name}.jpg"], MaskClasses.plain(65535)).view(0, (224, 224), shape, framing)
        assert np.abs(seen - told).max() <= 1, "half a pixel to either side, and bicubic ends"


def test_a_map_of_other_proportions_or_of_colours_is_refused(tmp_path):
    write(tmp_path, "x.png")
    Image.fromarray(np.zeros((4, 4, 3), np.uint8)).save(tmp_path / "rgb.png")
    (tmp_path / "bad.png").write_bytes(b"\x89PNG, allegedly")
    maps = LabelMaps(tmp_path, ["x.jpg", "rgb.jpg", "bad.jpg"], MaskClasses.plain())
    with pytest.raises(DataError, match="is 30 x 44 and its image 44 x 30; aspect ratios must be equal"):
        maps.view(0, (8, 8), (44, 30))
    with pytest.raises(DataError, match="has the mode RGB; allowed: one channel"):
        maps.read(1)
    with pytest.raises(DataError, match="cannot be read"):
        maps.read(2)
