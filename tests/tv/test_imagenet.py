"""ImageNet-1k from its archives: torchvision.datasets.ImageNet sees the same images in the same classes.

The archives are small and made here, with the official names and structure; torchvision's checksums are left out.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from echoless.data import open_images

WNIDS = {1: "n02119789", 2: "n01440764", 3: "n01443537"}  # in the devkit, ids are not in the order of names
TRUTH = (3, 1, 1, 2)


def add(tar: tarfile.TarFile, name: str, data: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    tar.addfile(info, io.BytesIO(data))


def jpeg(number: int) -> bytes:
    pixels = np.random.default_rng(number).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG")
    return file.getvalue()


def devkit(root: Path) -> None:
    """ILSVRC2012_devkit_t12.tar.gz. num_children is the fifth field, and synsets above the classes come last."""
    names = ("ILSVRC2012_ID", "WNID", "words", "gloss", "num_children")
    rows = [(float(number), wnid, f"{wnid}, alias", "gloss", 0.0) for number, wnid in WNIDS.items()]
    rows.append((4.0, "n00001740", "entity", "gloss", 3.0))
    data = root / "ILSVRC2012_devkit_t12" / "data"
    data.mkdir(parents=True)
    savemat(data / "meta.mat", {"synsets": np.array(rows, dtype=[(name, object) for name in names]).reshape(-1, 1)})
    (data / "ILSVRC2012_validation_ground_truth.txt").write_text("".join(f"{number}\n" for number in TRUTH))
    with tarfile.open(root / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
        tar.add(data.parent, "ILSVRC2012_devkit_t12")


@pytest.fixture
def root(tmp_path, monkeypatch) -> Path:
    from torchvision.datasets import imagenet

    monkeypatch.setattr(imagenet, "_verify_archive", lambda root, file, md5: None)
    with tarfile.open(tmp_path / "ILSVRC2012_img_train.tar", "w") as outer:
        for number, wnid in WNIDS.items():
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as tar:
                for index in range(1 + number):
                    add(tar, f"{wnid}_{index}.JPEG", jpeg(10 * number + index))
            add(outer, f"{wnid}.tar", inner.getvalue())
    with tarfile.open(tmp_path / "ILSVRC2012_img_val.tar", "w") as tar:
        for index in range(len(TRUTH)):
            add(tar, f"ILSVRC2012_val_{index + 1:08d}.JPEG", jpeg(100 + index))
    devkit(tmp_path)
    return tmp_path


@pytest.mark.parametrize("split", ["train", "val"])
def test_torchvision_sees_the_same_images_in_the_same_classes(root, split, monkeypatch):
    from torchvision.datasets import ImageNet

    monkeypatch.setenv("ECHOLESS_CACHE", str(root / "cache"))
    theirs = ImageNet(root, split=split)
    expected = {Path(file).name: theirs.wnids[label] for file, label in theirs.samples}
    truth = root / "ILSVRC2012_devkit_t12" / "data" / "ILSVRC2012_validation_ground_truth.txt"
    ours = open_images(root / f"ILSVRC2012_img_{split}.tar", labels=truth if split == "val" else None)
    labels = ours.labels.tolist()
    assert {Path(path).name: ours.class_names[label] for path, label in zip(ours.paths, labels)} == expected
    for file, _ in theirs.samples:
        index = [Path(path).name for path in ours.paths].index(Path(file).name)
        (pixels_CHW,) = ours.get([index]).pixels
        assert np.array_equal(pixels_CHW.transpose(1, 2, 0), np.asarray(theirs.loader(file)))
    shutil.rmtree(root / split)  # what torchvision extracted
