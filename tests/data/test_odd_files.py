"""What is no image file is passed over or refused in one sentence; it never blocks or fills the memory.

Run alone: pytest tests/data/test_odd_files.py
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from echoless.data import content, open_images
from echoless.errors import DataError


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("ECHOLESS_CACHE", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(4):
        pixels = np.random.default_rng(number).integers(0, 256, (8, 8, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return tmp_path


def test_pipes_are_passed_over(folder):
    os.mkfifo(folder / "pipe.png")
    assert open_images(folder).paths == [f"{number}.png" for number in range(4)]


@pytest.mark.parametrize("how", [{}, {"tiles": 8}, {"cache": "off"}], ids=["images", "tiles", "without a cache"])
def test_links_to_nowhere_and_to_themselves_are_bad_images(folder, how):
    """They were passed over in silence: a set whose disk is not mounted looked like a small one."""
    (folder / "loop.png").symlink_to("loop.png")
    (folder / "gone.png").symlink_to("nowhere.png")
    images = open_images(folder, max_bad_fraction=0.5, **how)
    images.get(range(6))
    assert [(bad.path, bad.reason) for bad in images.bad] == [
        ("gone.png", "it is a link that leads nowhere"),
        ("loop.png", "it is a link that leads nowhere"),
    ]
    with pytest.raises(DataError, match=r"2 of 6 images cannot be used.*--max-bad-fraction 0\.34 leaves them out"):
        open_images(folder, **how).get(range(6))


def test_links_to_nowhere_that_are_no_images_are_counted_with_the_other_files(folder):
    said: list[str] = []
    (folder / "class2").symlink_to("/not/mounted")
    assert len(open_images(folder, say=said.append)) == 4
    assert said == [f"1 other file in {folder} passed over (1 broken link)"]


def test_a_broken_link_is_remembered_as_one_until_it_leads_somewhere(folder, monkeypatch):
    """Otherwise all images would be decoded again by every command."""
    (folder / "4.png").symlink_to("there.png")
    monkeypatch.setattr(content, "_SETTLED_NS", 0)
    before = open_images(folder, max_bad_fraction=0.5)
    with monkeypatch.context() as patched:
        patched.setattr("echoless.data.sources.FolderSource.read", lambda *_: pytest.fail("it is known"))
        again = open_images(folder, max_bad_fraction=0.5)
    assert again.fingerprint == before.fingerprint and [bad.path for bad in again.bad] == ["4.png"]
    (folder / "0.png").rename(folder / "there.png")
    (folder / "0.png").symlink_to("there.png")
    mended = open_images(folder)
    assert len(mended) == 6 and mended.bad == [] and mended.fingerprint != before.fingerprint


def test_links_that_lead_nowhere_change_no_other_set(folder):
    """The fingerprint of a folder without them, as runs of earlier versions recorded it."""
    lines = [f"{n}.png/{hashlib.sha256((folder / f'{n}.png').read_bytes()).hexdigest()[:32]}" for n in range(4)]
    whole = b"".join(b"%d:%b" % (len(line), line.encode()) for line in lines)
    assert open_images(folder).fingerprint == hashlib.sha256(whole).hexdigest()


def refusing(plain, name: str, number: int):
    """A call of the operating system that refuses one path; root, as whom tests may run, is refused nothing."""

    def call(path, *arguments, **named):
        if Path(path).name == name:
            raise OSError(number, os.strerror(number), str(path))
        return plain(path, *arguments, **named)

    return call


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO], ids=["no permission", "a faulty disk"])
def test_a_sub_folder_that_cannot_be_read_is_refused(folder, monkeypatch, number):
    """Its images, perhaps a whole class, would vanish in silence."""
    (folder / "inside").mkdir()
    (folder / "0.png").rename(folder / "inside" / "0.png")
    assert len(open_images(folder)) == 4
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, "inside", number))
    with pytest.raises(DataError, match=rf"/inside cannot be read: {os.strerror(number)}; make it readable, or move"):
        open_images(folder)


def test_a_file_whose_status_cannot_be_read_is_refused(folder, monkeypatch):
    """As in a folder that may be listed but not entered."""

    class Locked:
        name, path = "0.png", str(folder / "0.png")

        def stat(self):
            raise PermissionError(errno.EACCES, "Permission denied", self.path)

    plain = os.scandir
    monkeypatch.setattr(os, "scandir", lambda path: [Locked(), *(each for each in plain(path) if each.name != "0.png")])
    with pytest.raises(DataError, match=r"/0\.png cannot be read: Permission denied"):
        open_images(folder)


def test_the_folder_of_the_disks_administrator_holds_no_data(folder, monkeypatch):
    (folder / "lost+found").mkdir()
    monkeypatch.setattr(os, "scandir", refusing(os.scandir, "lost+found", errno.EACCES))
    assert len(open_images(folder)) == 4


def test_a_label_file_that_cannot_be_read_is_one_sentence(folder, monkeypatch):
    (folder / "locked.csv").write_text("0.png,1\n")
    monkeypatch.setattr(Path, "open", refusing(Path.open, "locked.csv", errno.EACCES))
    with pytest.raises(DataError, match=r"labels file .*locked\.csv cannot be read: .*Permission denied"):
        open_images(folder, labels=folder / "locked.csv")


def test_labels_in_another_encoding_are_told_how_to_be_saved(folder):
    (folder / "latin.csv").write_bytes("path,label\n0.png,Köln\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"labels file .*latin\.csv is not UTF-8: it has the byte 0xf6; save it as CSV"):
        open_images(folder, labels=folder / "latin.csv")


def test_a_sparse_file_of_200_gigabytes_is_one_bad_image(folder):
    with (folder / "huge.png").open("wb") as file:
        file.truncate(200 * 10**9)
    (bad,) = open_images(folder, max_bad_fraction=0.5).bad
    assert bad.path == "huge.png" and "200,000,000,000 bytes" in bad.reason


def test_a_member_of_100_gigabytes_in_a_tar_is_not_read(tmp_path):
    """The file is sparse, so that the announced size is there to be read: it would fill the memory."""
    member = tarfile.TarInfo("huge.png")
    member.size = 100 * 2**30
    with (tmp_path / "data.tar").open("wb") as file:
        file.write(member.tobuf())
        file.truncate(member.size + 2048)
    with pytest.raises(DataError, match=r"huge.png \(the member has 107,374,182,400 bytes; allowed: 2,147,483,648\)"):
        open_images(tmp_path / "data.tar")


def test_a_folder_of_images_and_shards_is_ambiguous(folder):
    """One of the two would be left out in silence."""
    with tarfile.open(folder / "more.tar", "w") as tar:
        tar.add(folder / "0.png", "0.png")
    message = (
        r"1 \*.tar and 4 image files, but only one kind can be read; give '.*/\*.tar' or '(.*)' for the image files"
    )
    with pytest.raises(DataError, match=message) as refused:
        open_images(folder)
    assert open_images(f"{folder}/*.tar").paths == ["0.png"]
    advised = re.search(message, str(refused.value))[1]
    (folder / "more.tar").rename(folder.parent / "more.tar")
    alone = open_images(folder, max_bad_fraction=1.0)
    (folder.parent / "more.tar").rename(folder / "more.tar")
    again = open_images(advised, max_bad_fraction=1.0)
    assert again.paths == alone.paths and again.fingerprint == alone.fingerprint and again.labels == alone.labels


def test_image_files_can_be_named_one_by_one_and_by_a_pattern(tmp_path):
    """Labels are those of the folder; hidden files are passed over, and links that lead nowhere are bad, as there."""
    for name in ("a/0.png", "a/1.jpg", "b/2.png", "b/.hidden.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8), len(name)).save(tmp_path / name)
    (tmp_path / "b" / "nowhere.png").symlink_to(tmp_path / "no.png")
    (tmp_path / "a" / "notes.txt").write_text("no image")
    named = open_images(f"{tmp_path}/*/*.png", max_bad_fraction=0.5)
    assert named.paths == ["a/0.png", "b/2.png", "b/nowhere.png"] and len(named.bad) == 1
    assert open_images(f"{tmp_path}/**/*", max_bad_fraction=0.5).class_names == ("a", "b")
    assert open_images(f"{tmp_path}/a/*.{{png,jpg}}").paths == ["0.png", "1.jpg"]
    said: list[str] = []
    assert open_images(tmp_path / "a" / "1.jpg", say=said.append).paths == ["1.jpg"]
    assert open_images(f"{tmp_path}/a/*.png", say=said.append).paths == ["0.png"] and not said, (
        "nobody meant the others"
    )
    open_images(f"{tmp_path}/**/*", max_bad_fraction=0.5, say=said.append)
    assert said == [f"1 other file in {tmp_path} passed over (1 .txt)"]
    with pytest.raises(DataError, match="is no data set"):
        open_images(tmp_path / "a" / "notes.txt")


@pytest.mark.parametrize("name", ["data.parquet", "data.tar", "data.npz"])
def test_a_pipe_as_data_is_refused_and_does_not_block(tmp_path, name):
    os.mkfifo(tmp_path / name)
    with pytest.raises(DataError, match="a pipe or a device; allowed: regular files"):
        open_images(tmp_path / name)


def test_a_device_is_neither_data_nor_labels(folder, tmp_path_factory):
    """Reading /dev/zero to its end would never end."""
    link = tmp_path_factory.mktemp("elsewhere") / "zeros.parquet"
    with pytest.raises(DataError, match="allowed"):
        open_images("/dev/zero")
    link.symlink_to("/dev/zero")
    with pytest.raises(DataError, match="a pipe or a device; allowed: regular files"):
        open_images(link)
    with pytest.raises(DataError, match="is not a regular file"):
        open_images(folder, labels=Path("/dev/zero"))


def labelled(folder: Path, text: str):
    file = folder / "labels.csv"
    file.write_text(text)
    return open_images(folder, labels=file)


def test_a_label_of_5000_digits_is_text(folder):
    many = "7" * 5000
    images = labelled(folder, "".join(f"{number}.png,{many if number else 1}\n" for number in range(4)))
    assert images.class_names == ("1", many)


def test_rows_that_contradict_each_other_are_refused(folder):
    rows = "".join(f"{number}.png,a\n" for number in range(4))
    assert labelled(folder, rows + "0.png,a\n").class_names == ("a",)
    with pytest.raises(DataError, match=r"gives '0.png' two labels, 'a' and 'b'"):
        labelled(folder, rows + "0.png,b\n")


def test_a_pipe_a_folder_and_nothing_as_label_file_are_refused(folder):
    os.mkfifo(folder / "pipe.csv")
    for name, found in (
        ("pipe.csv", "is not a regular file"),
        (".", "is not a regular file"),
        ("x.csv", "does not exist"),
    ):
        with pytest.raises(DataError, match=found):
            open_images(folder, labels=folder / name)


def test_a_label_file_without_line_ends_is_refused_before_it_fills_the_memory(folder):
    with (folder / "huge.csv").open("wb") as file:
        file.write(b"0.png " * 1000)
        file.truncate(200 * 10**9)
    with pytest.raises(DataError, match=r"huge.csv has a line of more than 1,048,576 characters"):
        open_images(folder, labels=folder / "huge.csv")


def test_1_and_01_are_two_classes(folder):
    assert labelled(folder, "0.png,1\n1.png,01\n2.png,1\n3.png,2\n").class_names == ("01", "1", "2")
    assert labelled(folder, "0.png,01\n1.png,02\n2.png,01\n3.png,10\n").class_names == ("1", "2", "10")


def make_run(folder: Path, *others: str) -> None:
    """With what tells a run, and pictures of it."""
    (folder / "figures").mkdir(parents=True)
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(folder / "figures" / "grid.png")
    (folder / "config.json").write_text("{}")
    for name in others:
        (folder / name).mkdir() if name == "checkpoints" else (folder / name).write_text("{}")


@pytest.mark.parametrize("others", [("about.json",), ("checkpoints",), ("about.json", "checkpoints")], ids=str)
def test_a_run_inside_a_folder_of_images_is_passed_over(folder, others):
    """Its figures became images, and where images lie in folders, a class with the name of the run."""
    whole = open_images(folder)
    make_run(folder / "run", *others)
    said: list[str] = []
    images = open_images(folder, say=said.append)
    assert images.paths == whole.paths and images.fingerprint == whole.fingerprint
    assert said == ["run: a run of echoless, passed over"]


def test_runs_are_no_classes_and_what_only_looks_like_one_is_data(tmp_path, folder):
    data = tmp_path.parent / f"{tmp_path.name}-classes"
    for name in ("a", "b"):
        (data / name).mkdir(parents=True)
        shutil.copy(folder / "0.png", data / name)
    make_run(data / "runs" / "1", "about.json")
    make_run(data / "runs" / "2", "checkpoints")
    make_run(data / "model")  # config.json alone
    said: list[str] = []
    images = open_images(data, say=said.append)
    assert images.class_names == ("a", "b", "model") and images.paths[2] == "model/figures/grid.png"
    assert said[-1] == "runs/1, runs/2: 2 runs of echoless, passed over"
    assert open_images(data / "runs" / "1").paths == ["figures/grid.png"], "a run that is asked for is read"
    with pytest.raises(DataError, match=r"holds no image file .*; 1, 2: 2 runs of echoless, passed over$"):
        open_images(data / "runs")
