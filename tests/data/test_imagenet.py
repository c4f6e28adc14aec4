"""ImageNet-1k as it is distributed: a tar of one tar per class, a flat tar with a ground-truth file, lists of classes.

The archives are made here with the official structure and names; Python's own tarfile extracts them for comparison,
and scipy writes the development kit's meta.mat. `tests/tv/test_imagenet.py` compares with torchvision.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from echoless.data import open_images
from echoless.data.classes import read_class_list
from echoless.errors import ConfigError, DataError, UntrustedFile

WNIDS = ("n01440764", "n01443537", "n02119789")


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


@pytest.fixture
def train_tar(tmp_path, picture, encoded) -> Path:
    """ILSVRC2012_img_train.tar: NAME.tar for each class, which holds NAME_NUMBER.JPEG."""
    file = tmp_path / "ILSVRC2012_img_train.tar"
    with tarfile.open(file, "w") as outer:
        for place, name in enumerate(WNIDS):
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for number in range(2 + place):
                    pixels = picture(10 * place + number, height=20 + place, width=24)
                    add(tar, f"{name}_{number}.JPEG", encoded(pixels, "JPEG", quality=95))
            add(outer, f"{name}.tar", inner.getvalue())
    return file


def meta_mat(file: Path, ids: dict[int, str]) -> None:
    """As in ILSVRC2012_devkit_t12/data: a struct array `synsets`, here with the fields that matter and two others."""
    kinds = [("ILSVRC2012_ID", object), ("WNID", object), ("words", object), ("num_children", object)]
    rows = [(float(number), name, f"words of {name}", 0.0) for number, name in ids.items()]
    savemat(file, {"synsets": np.array(rows, dtype=kinds).reshape(-1, 1)})


@pytest.fixture
def validation(tmp_path, picture, encoded) -> tuple[Path, Path]:
    """ILSVRC2012_img_val.tar, whose members are not in order, and the devkit's ground truth beside its meta.mat."""
    file = tmp_path / "ILSVRC2012_img_val.tar"
    with tarfile.open(file, "w") as tar:
        for number in (3, 1, 2, 4):
            add(tar, f"ILSVRC2012_val_{number:08d}.JPEG", encoded(picture(100 + number), "JPEG"))
    data = tmp_path / "devkit" / "data"
    data.mkdir(parents=True)
    truth = data / "ILSVRC2012_validation_ground_truth.txt"
    truth.write_text("3\n1\n1\n2\n")
    meta_mat(data / "meta.mat", {1: WNIDS[2], 2: WNIDS[0], 3: WNIDS[1]})
    return file, truth


def named(images) -> dict[str, str]:
    return {path: images.class_names[label] for path, label in zip(images.paths, images.labels.tolist())}


def test_the_training_tar_is_the_folder_that_it_extracts_to(train_tar, tmp_path):
    """Paths, classes and pixels: against tarfile's own extraction, opened as a folder of classes."""
    folder = tmp_path / "extracted"
    with tarfile.open(train_tar) as outer:
        for member in outer:
            with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                inner.extractall(folder / member.name.removesuffix(".tar"), filter="data")
    packed, unpacked = open_images(train_tar), open_images(folder)
    assert packed.paths == unpacked.paths and len(packed) == 9
    assert packed.class_names == unpacked.class_names == WNIDS
    assert packed.labels.tolist() == unpacked.labels.tolist()
    for one, other in zip(packed.get(range(9)).pixels, unpacked.get(range(9)).pixels):
        assert np.array_equal(one, other)
    assert packed.fingerprint == unpacked.fingerprint, "the same images, so the same caches and protocols"


def test_the_ground_truth_numbers_the_names_in_order_and_the_devkit_says_which_class_a_number_is(validation):
    file, truth = validation
    images = open_images(file, labels=truth)
    expected = {1: WNIDS[1], 2: WNIDS[2], 3: WNIDS[2], 4: WNIDS[0]}  # of lines 3, 1, 1, 2
    assert named(images) == {f"ILSVRC2012_val_{number:08d}.JPEG": name for number, name in expected.items()}


def test_without_the_devkit_a_line_is_the_class_itself(validation, tmp_path):
    file, _ = validation
    lines = tmp_path / "labels.txt"
    lines.write_text("cat\ndog\ndog\ncat\n")
    assert sorted(named(open_images(file, labels=lines)).items())[1] == ("ILSVRC2012_val_00000002.JPEG", "dog")
    lines.write_text("3\n1\n1\n")
    with pytest.raises(DataError, match="has 3 lines and the data 4 images; allowed: rows path,label, or one label"):
        open_images(file, labels=lines)


def test_a_devkit_that_does_not_fit_is_refused(validation):
    file, truth = validation
    meta_mat(truth.with_name("meta.mat"), {1: WNIDS[0]})
    with pytest.raises(DataError, match=r"has the number 3, which .*meta\.mat does not name"):
        open_images(file, labels=truth)
    truth.with_name("meta.mat").write_bytes(b"MATLAB, allegedly")
    with pytest.raises(UntrustedFile, match=r"is not the meta\.mat of the ILSVRC2012 development kit"):
        open_images(file, labels=truth)


@pytest.mark.parametrize("kind", ["tar", "labels file"])
def test_only_the_listed_classes_are_used(kind, train_tar, validation, tmp_path):
    chosen = tmp_path / "classes.txt"
    chosen.write_text(f"# two of three\n{WNIDS[2]}\n\n{WNIDS[0]}\n")
    file, labels = (train_tar, None) if kind == "tar" else validation
    whole, part = open_images(file, labels=labels), open_images(file, labels=labels, classes=chosen)
    assert named(part) == {path: name for path, name in named(whole).items() if name != WNIDS[1]}
    assert part.class_names == (WNIDS[0], WNIDS[2]), "numbered from 0 without gaps"
    for index, path in enumerate(part.paths):
        (one,), (other,) = part.get([index]).pixels, whole.get([whole.paths.index(path)]).pixels
        assert np.array_equal(one, other)


def test_two_selections_of_one_file_are_never_taken_for_each_other(train_tar, tmp_path):
    """They have the same files and, here, as many images; what is remembered of one must not serve the other."""
    import os
    import time

    old = time.time() - 100  # hashes are remembered of files that have not just changed
    os.utime(train_tar, (old, old))
    prints = []
    for names in (WNIDS[:1], ("n01443537",)):
        chosen = tmp_path / "classes.txt"
        chosen.write_text("\n".join(names))
        images = open_images(train_tar, classes=chosen)
        prints.append((images.fingerprint, open_images(train_tar, classes=chosen, cache="off").fingerprint))
    assert prints[0][0] == prints[0][1] != prints[1][0] == prints[1][1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "which is empty; allowed: a file with one class name per line"),
        ("a\nb\na\n", "names 'a' twice"),
        ("n01440764\nn09999999\n", "no images of 1 of 2 classes, first 'n09999999'"),
    ],
)
def test_a_list_that_does_not_fit_is_refused(text, says, train_tar, tmp_path):
    chosen = tmp_path / "classes.txt"
    chosen.write_text(text)
    with pytest.raises(DataError, match=says):
        open_images(train_tar, classes=chosen)


def test_classes_need_labels_and_image_files(validation, tmp_path):
    chosen = tmp_path / "classes.txt"
    chosen.write_text("disc\n")
    with pytest.raises(ConfigError, match=r"classes is .* holds no image files; allowed: a folder"):
        open_images("shapes:20", classes=chosen)
    with pytest.raises(DataError, match="the images have no labels"):
        open_images(validation[0], classes=chosen)
    assert len(open_images(validation[0], classes=chosen, require_labels=False)) == 4
    with pytest.raises(DataError, match=r"does not exist; allowed: .* or imagenet100"):
        open_images("shapes:20", classes=tmp_path / "nowhere.txt")


def test_imagenet100_is_a_hundred_different_wordnet_ids():
    names = read_class_list("imagenet100")
    assert len(set(names)) == 100 and all(len(name) == 9 and name[0] == "n" for name in names)
    assert {"n02869837", "n01749939", "n02090622"} <= set(names), "the first two and the last of the published list"


def test_an_inner_tar_that_is_none_or_ends_early_does_no_harm(tmp_path, picture, encoded):
    file = tmp_path / "a.tar"
    with tarfile.open(file, "w") as outer:
        add(outer, "n1.tar", b"not a tar at all" * 100)
    with pytest.raises(DataError, match=r"n1.tar in .*a.tar is not a readable uncompressed tar file"):
        open_images(file)
    inner = io.BytesIO()
    with tarfile.open(fileobj=inner, mode="w") as tar:
        for number in range(3):
            add(tar, f"{number}.png", encoded(picture(number)))
    with tarfile.open(file, "w") as outer:
        add(outer, "n1.tar", inner.getvalue()[:-6000])
        add(outer, "n2.tar", inner.getvalue())
    images = open_images(file, max_bad_fraction=0.5)
    assert {path.split("/")[0] for path in images.paths} == {"n1", "n2"} and images.usable >= 4
