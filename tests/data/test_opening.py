"""Proves that every kind of DATA opens with the right pixels, labels, names and shape, cached and not."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import torch
from PIL import Image

from echoless.data import open_images
from echoless.data.provenance import describe_labels
from echoless.data.reading import align_classes, describe_classes, leave_out_unlabelled
from echoless.errors import ConfigError, DataError
from echoless.evaluation.classify import check_labels

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]


@pytest.fixture(params=["on", "off"])
def cache(request: pytest.FixtureRequest) -> str:
    return request.param


def _assert_pixels(images: object, expected: list[np.ndarray]) -> None:
    raw = images.get(range(len(expected)))  # type: ignore[attr-defined]
    assert raw.kept_B.tolist() == list(range(len(expected)))
    for pixels, array in zip(raw.pixels, expected):
        assert np.array_equal(pixels, array.transpose(2, 0, 1))


def test_a_flat_folder_is_unlabelled(tmp_path: Path, picture: Picture, encoded: Encoded, cache: str) -> None:
    for i in range(5):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)))
    (tmp_path / "notes.txt").write_text("not an image, and not a bad one")
    (tmp_path / ".hidden.png").write_bytes(b"")
    images = open_images(tmp_path, cache=cache)
    assert images.labels is None and images.class_names is None
    assert images.paths == ["0.png", "1.png", "2.png", "3.png", "4.png"]
    assert images.shape == (3, 40, 48) and images.bits == 8 and images.bad == []
    _assert_pixels(images, [picture(i) for i in range(5)])


def test_a_nested_folder_is_labelled_by_its_first_level(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i, name in enumerate(["dog/a", "cat/deep/er", "cat", "dog"]):
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
        (tmp_path / name / f"{i}.png").write_bytes(encoded(picture(i)))
    images = open_images(str(tmp_path))
    assert images.paths == ["cat/2.png", "cat/deep/er/1.png", "dog/3.png", "dog/a/0.png"]
    assert images.class_names == ("cat", "dog") and images.labels.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("layout", [["all/a.png", "all/b.png"], ["a.png", "more/b.png"]])
def test_nested_without_classes_is_unlabelled(
    layout: list[str], tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    for i, name in enumerate(layout):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(encoded(picture(i)))
    assert open_images(tmp_path).labels is None


def test_a_link_that_leads_back_does_not_loop(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    (tmp_path / "a.png").write_bytes(encoded(picture(0)))
    (tmp_path / "again").symlink_to(tmp_path, target_is_directory=True)
    assert len(open_images(tmp_path)) == 1


@pytest.mark.parametrize("header", ["path,label\n", "label,path\n", ""])
def test_a_label_file_labels_a_flat_folder(header: str, tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)))
    rows = [("2.png", "x"), ("0.png", "y"), ("1.png", "x"), ("elsewhere.png", "z")]
    order = (1, 0) if header.startswith("label") else (0, 1)
    file = tmp_path / "labels.csv"
    file.write_text(header + "".join(f"{row[order[0]]},{row[order[1]]}\n" for row in rows))
    images = open_images(tmp_path, labels=file)
    assert images.class_names == ("x", "y") and images.labels.tolist() == [1, 0, 0]
    file.write_text("path,label\n0.png,1\n")
    images = open_images(tmp_path, labels=file)
    assert images.labels.tolist() == [0, -1, -1] and images.class_names == ("1",), "few labels are the normal case"
    file.write_text("path,label\nphotos/0.png,1\n")
    with pytest.raises(
        DataError,
        match=r"no label for any of the 3 images; its first row is for 'photos/0\.png'; paths begin inside the folder, "
        r"as '0\.png'$",
    ):
        open_images(tmp_path, labels=file)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_an_empty_cell_of_a_label_file_is_no_label(
    kind: str, tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """As pandas writes what is missing. Blanks are no label either, and numbers stay numbers."""
    names = [f"{i}.png" for i in range(5)]
    for i, name in enumerate(names):
        (tmp_path / name).write_bytes(encoded(picture(i)))
    file = tmp_path.parent / f"{tmp_path.name}.{kind}"

    def write(cells: list[str]) -> None:
        if kind == "parquet":
            pyarrow.parquet.write_table(pyarrow.table({"path": names[:4], "label": cells}), file)
        else:
            file.write_text("path,label\n" + "".join(f"{name},{cell}\n" for name, cell in zip(names, cells)))

    write(["7", "", "  ", "10"])
    images = open_images(tmp_path, labels=file)
    assert images.class_names == ("7", "10") and images.labels.tolist() == [0, -1, -1, 1, -1]
    (line,) = describe_classes(images)
    assert line.startswith(f"labels: 2 classes from {file.name}, on 2 of 5 images (7, 10)")
    assert leave_out_unlabelled(images).startswith("3 images have no label and are left out")
    write(["", " ", "", ""])
    with pytest.raises(DataError, match=r"has no label for any of the 5 images, first '0\.png'$"):
        open_images(tmp_path, labels=file)


def test_rows_that_name_no_image_are_counted(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """A path with another folder before it once dropped its label in silence, and gave a number of the few others."""
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)))
    file = tmp_path / "labels.csv"
    file.write_text("path,label\n0.png,cat\nphotos/1.png,dog\nphotos/2.png,dog\n")
    lines = describe_classes(open_images(tmp_path, labels=file))
    assert lines[0].endswith("on 1 of 3 images (cat); always naming the largest is right in 100.0 %")
    assert lines[1:] == [
        f"labels: 2 of the 3 rows of {file} name no image here, first 'photos/1.png'; paths begin inside the "
        "folder, as '1.png'"
    ]
    file.write_text("Filename,Class\n0.png,cat\n1.png,dog\n2.png,dog\n")
    assert len(describe_classes(open_images(tmp_path, labels=file))) == 1, "a header is no row"


def test_files_that_are_not_read_are_said(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i, name in enumerate(("0.png", "1.MOV", "2.mov", "3.cr2", "notes")):
        (tmp_path / name).write_bytes(encoded(picture(i)))
    said: list[str] = []
    assert len(open_images(tmp_path, say=said.append)) == 1
    assert said == [f"4 other files in {tmp_path} passed over (2 .mov, 1 .cr2, 1 notes)"]
    for kind in ("a", "b", "c"):
        (tmp_path / f"4.{kind}").write_bytes(b"")
    open_images(tmp_path, say=said.append)
    assert said[1].endswith("(2 .mov, 1 .a, 1 .b, 1 .c, 1 .cr2, ...)"), "that there are more kinds is said"


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_a_label_file_may_come_from_a_spreadsheet(
    separator: str, tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """With semicolons, a row for every image and no header, each row was taken for a class of its own."""
    for i in range(2):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)))
    file = tmp_path / "labels.csv"
    for header in ("", separator.join(("path", "label")) + "\n", separator.join(("Filename", "Class")) + "\n"):
        file.write_text(header + f"0.png{separator}cat\n1.png{separator}dog\n")
        images = open_images(tmp_path, labels=file)
        assert images.class_names == ("cat", "dog") and images.labels.tolist() == [0, 1]
    file.write_text("0.png 7\n1.png 8\n")
    with pytest.raises(DataError, match=r"has the row '0\.png 7'; separate path and label by a comma"):
        open_images(tmp_path, labels=file)


def test_sub_folders_are_labels_unless_they_are_switched_off(
    tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """The line that a verb prints says how many classes there are, what guessing scores, and how to ignore them."""
    for i, name in enumerate(("cats/0.png", "dogs/1.png", "dogs/2.png", "dogs/3.png")):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(encoded(picture(i)))
    assert open_images(tmp_path).folder == tmp_path
    (line,) = describe_classes(open_images(tmp_path))
    assert line == (
        "labels: 2 classes from sub-folders (cats, dogs); always naming the largest is right in 75.0 %; --labels none "
        "ignores them"
    )
    plain = open_images(tmp_path, labels=Path("none"))
    assert plain.labels is None and describe_classes(plain) == []
    (tmp_path / "4.png").write_bytes(encoded(picture(4)))
    assert describe_classes(open_images(tmp_path)) == [
        "labels: none; the 2 sub-folders (cats, dogs) are not used as classes, because 1 of 5 images lie beside them; "
        "move those into a sub-folder, or away, or give --labels FILE.csv"
    ]
    assert describe_classes(open_images(tmp_path, labels=Path("none"))) == []


def test_classes_that_were_listed_are_not_listed_again(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """Of a second set: its own classes, a file of labels, and what is odd about it are still said."""
    names = ("a/cats/0.png", "a/dogs/1.png", "b/cats/0.png", "b/dogs/1.png", "c/cats/0.png", "c/elk/1.png")
    for i, name in enumerate(names):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded(picture(i)))
    file = tmp_path / "few.csv"
    file.write_text("cats/0.png,cats\ndogs/1.png,dogs\nelsewhere.png,cats\n")
    first, same, other = (open_images(tmp_path / name) for name in "abc")
    assert describe_classes(same, "--test", like=first) == []
    assert describe_classes(other, "--test", like=first) == [
        "labels of --test: 2 classes from sub-folders (cats, elk); always naming the largest is right in 50.0 %; "
        "--test-labels none ignores them"
    ]
    (needed,) = describe_classes(other, "--test", like=first, needed=True)
    assert "none" not in needed, "where nothing can be done without labels, switching them off is no advice"
    listed, odd = describe_classes(open_images(tmp_path / "b", labels=file), "--test", like=first)
    assert listed.startswith("labels of --test: 2 classes from few.csv, on 2 of 2 images (cats, dogs)")
    assert "1 of the 3 rows" in odd
    first.labels[0] = -1
    assert "on 1 of 2 images" in describe_classes(first, "--test", like=same)[0]


def test_the_chance_level_is_that_of_the_images_that_can_be_read(
    tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    for name in ("a/0.png", "a/1.png", "b/2.png", "b/3.png", "b/empty.png", "b/cut.png", "c/only.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        bad = name in ("b/empty.png", "b/cut.png", "c/only.png")
        (tmp_path / name).write_bytes(b"" if bad else encoded(picture(int(name[2]))))
    images = open_images(tmp_path, max_bad_fraction=1.0)
    (line,) = describe_classes(images)
    assert line.startswith("labels: 2 classes from sub-folders (a, b); always naming the largest is right in 50.0 %")
    assert describe_labels(images, None)["chance"] == 0.5


def test_a_label_as_long_as_a_page_is_cut_where_it_is_named(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for number in (0, 1):
        (tmp_path / f"{number}.png").write_bytes(encoded(picture(number)))
    table = tmp_path / "labels.csv"
    table.write_text(f"0.png,{'a' * 5000}\n1.png,b\n")
    images = open_images(tmp_path, labels=table)
    assert images.class_names == ("a" * 5000, "b"), "the name itself is kept"
    assert f"({'a' * 60}..., b)" in describe_classes(images)[0]


def test_a_class_whose_name_holds_a_comma_stays_one_class(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """In what is said of a set, in refusals and in lists of classes: it looked like two."""
    for name in ("train/tabby, tiger cat/0.png", "train/dog/1.png", "test/tabby/2.png", "test/tiger cat/3.png"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(encoded(picture(int(name[-5]))))
    train, test = open_images(tmp_path / "train"), open_images(tmp_path / "test")
    assert "(dog, 'tabby, tiger cat')" in describe_classes(train)[0]
    assert "(tabby, tiger cat)" in describe_classes(test)[0]
    with pytest.raises(DataError, match=r"lacks: dog, 'tabby, tiger cat'$"):
        align_classes(replace(train, class_names=("bird", "fish")), open_images(tmp_path / "train"))
    with pytest.raises(DataError, match=r"lacks: 'tabby, tiger cat'$"):
        check_labels(torch.tensor([0]), torch.tensor([1]), train.class_names)
    (tmp_path / "train" / "4.png").write_bytes(encoded(picture(4)))
    assert "the 2 sub-folders (dog, 'tabby, tiger cat') are not" in describe_classes(open_images(tmp_path / "train"))[0]
    names = tmp_path / "names.txt"
    names.write_text("tabby, tiger cat\n")
    (tmp_path / "train" / "4.png").unlink()
    assert open_images(tmp_path / "train", classes=names).class_names == ("tabby, tiger cat",)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('path,label\n0.png,"tabby, grey"\n1.png,dog\n', ["tabby, grey", "dog"]),
        ("0.png;tabby, grey\n1.png;dog\n", ["tabby, grey", "dog"]),
        ("0.png\ttabby, grey\n1.png\tdog\n", ["tabby, grey", "dog"]),
        ("dog\ntabby, grey\n", ["dog", "tabby, grey"]),
        ("path,label,,\n0.png,cat,,,\n1.png,dog\n", ["cat", "dog"]),
        ("path,label,by\n0.png,cat,me\n1.png,dog,\n", ["cat", "dog"]),
        ("path, label, by\n0.png, cat, me\n1.png, dog, me\n", ["cat", "dog"]),
        ('path,label,by\n0.png,"tabby, grey",me\n1.png,dog,me,,\n', ["tabby, grey", "dog"]),
        ("0.png,cat,\n1.png,dog,,\n", ["cat", "dog"]),
        (
            "path,label\n0.png,tabby, grey\n1.png,dog\n",
            "'0.png,tabby, grey', which has more columns than others; put a",
        ),
        ("0.png,dog\n1.png,tabby, grey\n", "'1.png,tabby, grey', which has more columns than others; put a label"),
        ("path,label,by\n0.png,tabby, grey,me\n", "'0.png,tabby, grey,me', which has more columns than others; put a"),
        ("path,label,by\n0.png,tabby, grey\n", "'0.png,tabby, grey', with a blank before the column that follows the"),
        ("label,path,by\ntabby, grey,0.png\n", "'tabby, grey,0.png', with a blank before the column that follows the"),
        ("path,label,by\n0.png,dog\n1.png,tabby,grey\n", "'0.png,dog' with 2 columns, and its header has 3; write the"),
    ],
)
def test_a_comma_in_a_label_of_a_file_is_kept_or_refused(
    text: str, found: list[str] | str, tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """Without quotes it begins a column that nobody reads, or that passes for another one where rows may be shorter."""
    for i in range(2):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)))
    file = tmp_path.parent / f"{tmp_path.name}.csv"
    file.write_text(text)
    if isinstance(found, str):
        with pytest.raises(DataError, match=f"has the row {found}"):
            open_images(tmp_path, labels=file)
        return
    images = open_images(tmp_path, labels=file)
    assert [images.class_names[label] for label in images.labels.tolist()] == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a;1.png", "a;1.png,cat\n"),
        ("a;1.png", "elsewhere;2.png,dog\na;1.png,cat\n"),
        ("a,1.png", "a,1.png;cat\n"),
        ("a.png", "a.png;cat\nelsewhere.png;tabby, grey\n"),
        ("a.png", "elsewhere.png;tabby, grey, old\na.png;cat\n"),
        ("a;1.png", "File name, if any;Class\n'a;1.png';cat\n"),
        ("a;1.png", "path,label\na;1.png,cat\n"),
        ("a,1.png", "a,1.png\tcat\n"),
    ],
)
def test_a_path_may_hold_what_separates_the_columns_of_other_files(
    name: str, text: str, tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """The first comma or semicolon decided: a row `a;1.png,cat` named an image `a` of the class `1.png,cat`."""
    (tmp_path / name).write_bytes(encoded(picture(0)))
    file = tmp_path.parent / f"{tmp_path.name}.csv"
    file.write_text(text.replace("'", '"'))
    assert open_images(tmp_path, labels=file).class_names == ("cat",)


@pytest.mark.parametrize(
    "text", ["0.png;blurred;cat\n", "Datei;Bemerkung;Art\n0.png;blurred;cat\n", "0.png,tabby, grey\n"]
)
def test_three_columns_without_their_names_are_refused(
    text: str, tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """By position, remarks were the classes, and an accuracy was printed for them."""
    (tmp_path / "0.png").write_bytes(encoded(picture(0)))
    file = tmp_path.parent / f"{tmp_path.name}.csv"
    file.write_text(text)
    shown = ", ".join(text.splitlines()[0].replace(";", ",").split(","))
    with pytest.raises(DataError, match=f"has the columns {shown}; with more than two, a first row must name"):
        open_images(tmp_path, labels=file)


@pytest.mark.parametrize(
    "row", ["./a/Müller.png", "photos/a/Müller.png", r"photos\a\Müller.png", "ABSOLUTE", "a/Mu\u0308ller.png"]
)
def test_a_row_may_write_the_path_as_other_programs_do(
    row: str, tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """With the folder before it, in the way of Windows, or with the accents of macOS, which look the same."""
    image = tmp_path / "photos" / "a" / "Müller.png"
    image.parent.mkdir(parents=True)
    image.write_bytes(encoded(picture(0)))
    file = tmp_path / "labels.csv"
    file.write_text(f"{image if row == 'ABSOLUTE' else row},cat\nother/a/Müller.png,dog\n")
    images = open_images(tmp_path / "photos", labels=file)
    assert images.class_names == ("cat",), "another folder of that name is another image"


def test_names_that_only_look_alike_are_two_images_and_letters_of_another_case_are_said(
    tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    names = ("u\u0308.png", "\u00fc.png", "B.png")
    for i, name in enumerate(names):
        (tmp_path / name).write_bytes(encoded(picture(i)))
    file = tmp_path.parent / f"{tmp_path.name}.csv"
    file.write_text(f"{names[0]},x\n{names[1]},y\nb.png,z\n")
    images = open_images(tmp_path, labels=file)
    labels = dict(zip(images.paths, images.labels.tolist()))
    assert labels == {names[0]: 0, names[1]: 1, "B.png": -1}
    assert images.label_note.endswith("first 'b.png'; upper and lower case differ, as in 'B.png'")


def test_classes_that_differ_in_their_case_alone_are_said(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """Labels typed by hand: Church and church halve the accuracy of both."""
    for i in range(3):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)))
    file = tmp_path.parent / f"{tmp_path.name}.csv"
    file.write_text("0.png,Church\n1.png,church\n2.png,truck\n")
    assert describe_classes(open_images(tmp_path, labels=file))[1:] == [
        "labels: 2 classes differ only in upper and lower case, as Church, church; they are not joined"
    ]


def test_a_table_of_labels_may_be_parquet(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i in range(2):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)))
    table = pyarrow.table({"path": ["1.png", "0.png"], "label": ["x", None]})
    pyarrow.parquet.write_table(table, tmp_path / "labels.parquet.keep")
    file = (tmp_path / "labels.parquet.keep").rename(tmp_path.parent / f"{tmp_path.name}.parquet")
    assert open_images(tmp_path, labels=file).labels.tolist() == [-1, 0]
    vectors = {"image": [{"bytes": b"1"}], "feature": [[1.0]]}  # neither a path nor a label, whatever their name
    pyarrow.parquet.write_table(pyarrow.table({"File name": ["1.png"], "class": ["x"], **vectors}), file)
    assert open_images(tmp_path, labels=file).labels.tolist() == [-1, 0]
    pyarrow.parquet.write_table(pyarrow.table({"path": ["1.png"], **vectors}), file)
    with pytest.raises(
        DataError, match=r"has the columns path; 'path' is the path, and the column of the classes must"
    ):
        open_images(tmp_path, labels=file)


def test_images_of_a_parquet_file_are_labelled_by_the_names_in_it(tmp_path, picture, encoded) -> None:
    rows = [{"bytes": encoded(picture(i)), "path": f"photo-{i}.png"} for i in range(3)]
    pyarrow.parquet.write_table(pyarrow.table({"image": rows}), tmp_path / "images.parquet")
    file = tmp_path / "labels.csv"
    file.write_text("path,label\nphoto-2.png,cat\nphoto-0.png,dog\n")
    images = open_images(tmp_path / "images.parquet", labels=file)
    assert images.class_names == ("cat", "dog") and images.labels.tolist() == [1, -1, 0]


def test_small_grey_pngs(tmp_path: Path, picture: Picture, encoded: Encoded, cache: str) -> None:
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i, 28, 28, 1)))
    images = open_images(tmp_path, cache=cache)
    assert images.shape == (1, 28, 28)
    _assert_pixels(images, [picture(i, 28, 28, 1) for i in range(4)])


@pytest.mark.parametrize(("channels", "dtype"), [(1, np.uint16), (5, np.uint8), (5, np.uint16)])
def test_scientific_tiffs(channels: int, dtype: type, tmp_path: Path, picture: Picture, cache: str) -> None:
    tifffile = pytest.importorskip("tifffile")
    for i in range(4):
        planes = picture(i, 30, 36, channels, dtype).transpose(2, 0, 1)
        tifffile.imwrite(tmp_path / f"{i}.tif", planes, photometric="minisblack")
    images = open_images(tmp_path, cache=cache)
    assert images.shape == (channels, 30, 36) and images.bits == 8 * np.dtype(dtype).itemsize
    _assert_pixels(images, [picture(i, 30, 36, channels, dtype) for i in range(4)])


def test_images_of_many_sizes(tmp_path: Path, picture: Picture, encoded: Encoded, cache: str) -> None:
    sizes = [(20, 60), (60, 20), (33, 47), (300, 400)]
    for i, (height, width) in enumerate(sizes):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i, height, width)))
    images = open_images(tmp_path, cache=cache)
    raw = images.get([3, 1, 0, 2])
    assert [image.shape for image in raw.pixels] == [(3, 300, 400), (3, 60, 20), (3, 20, 60), (3, 33, 47)]
    assert np.array_equal(raw.pixels[1], picture(1, 60, 20).transpose(2, 0, 1))


def test_mixed_channels_become_what_most_images_have(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i, channels in enumerate([3, 1, 4, 3, 3]):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i, channels=channels)))
    said: list[str] = []
    images = open_images(tmp_path, say=said.append)
    assert images.shape.channels == 3 and images.bad == []
    assert np.array_equal(images.get([1]).pixels[0][2], picture(1, channels=1)[:, :, 0])
    assert said == [], "a few among many are no matter"
    grey = open_images(tmp_path, channels=1, say=said.append)
    assert grey.shape.channels == 1 and grey.get([0]).pixels[0].shape == (1, 40, 48)
    assert said == ["channels: images of 3 channels are converted to 1"]


def _write_parquet(path: Path, blobs: list[bytes], labels: list | None, names: list[str] | None = None) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns = {
        "image": pa.array(
            [{"bytes": blob, "path": None} for blob in blobs],
            pa.struct([("bytes", pa.binary()), ("path", pa.string())]),
        )
    }
    if labels is not None:
        columns["label"] = pa.array(labels)
    table = pa.table(columns)
    if names:
        features = {"image": {"_type": "Image"}, "label": {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=3)


def test_other_structs_of_a_parquet_file_are_no_images(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    _write_parquet(tmp_path / "a.parquet", [encoded(picture(i)) for i in range(4)], [0, 1, 0, 1])
    table = pq.read_table(tmp_path / "a.parquet")
    pq.write_table(table.append_column("box", pa.array([{"x": 1, "y": 2}] * 4)), tmp_path / "a.parquet")
    assert len(open_images(tmp_path / "a.parquet")) == 4


def test_a_folder_of_parquet(tmp_path: Path, picture: Picture, encoded: Encoded, cache: str) -> None:
    blobs = [encoded(picture(i)) for i in range(10)]
    _write_parquet(tmp_path / "a.parquet", blobs[:7], [0, 1, 2, 0, 1, 2, 0], ["x", "y", "z"])
    _write_parquet(tmp_path / "b.parquet", blobs[7:], [1, 2, 0], ["x", "y", "z"])
    images = open_images(tmp_path, cache=cache)
    assert images.class_names == ("x", "y", "z") and images.labels.tolist() == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]
    assert images.paths[0] == "a.parquet/00000000" and images.paths[9] == "b.parquet/00000002"
    _assert_pixels(images, [picture(i) for i in range(10)])
    shuffled = [9, 0, 5, 2, 7]
    for pixels, i in zip(images.get(shuffled).pixels, shuffled):
        assert np.array_equal(pixels, picture(i).transpose(2, 0, 1))


def test_parquet_labels_may_be_text_or_missing(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    blobs = [encoded(picture(i)) for i in range(3)]
    _write_parquet(tmp_path / "text.parquet", blobs, ["b", "a", "b"])
    images = open_images(tmp_path / "text.parquet")
    assert images.class_names == ("a", "b") and images.labels.tolist() == [1, 0, 1]
    _write_parquet(tmp_path / "none.parquet", blobs, None)
    assert open_images(tmp_path / "none.parquet").labels is None
    _write_parquet(tmp_path / "hidden.parquet", blobs, [-1, -1, -1])
    assert open_images(tmp_path / "hidden.parquet").labels is None


@pytest.mark.parametrize("cells", [["b", "", "a"], ["b", None, "a"], ["b", " ", "a"]])
def test_an_empty_label_of_a_data_set_is_no_label_as_in_a_file_of_labels(
    cells: list[str | None], tmp_path: Path, picture: Picture, encoded: Encoded
) -> None:
    """An empty text was a class without a name, and one missing label took all others with it."""
    blobs = [encoded(picture(i)) for i in range(3)]
    _write_parquet(tmp_path / "some.parquet", blobs, cells)
    images = open_images(tmp_path / "some.parquet")
    assert images.class_names == ("a", "b") and images.labels.tolist() == [1, -1, 0]
    (line,) = describe_classes(images)
    assert line.startswith("labels: 2 classes from the data set, on 2 of 3 images (a, b)")
    assert leave_out_unlabelled(images) == "1 image has no label and is left out: measuring on the 2 that have one"
    (tmp_path / "one.txt").write_text("b\n")
    assert len(open_images(tmp_path / "some.parquet", classes=tmp_path / "one.txt")) == 1
    _write_parquet(tmp_path / "none.parquet", blobs, ["", None, " "])
    assert open_images(tmp_path / "none.parquet").labels is None


def test_the_real_parquet_agrees_with_pillow(cifar_parquet: Path) -> None:
    import pyarrow.parquet as pq

    images = open_images(cifar_parquet, cache="off")
    table = pq.ParquetFile(cifar_parquet).read_row_group(0).slice(0, 50)
    assert len(images) == 10_000 and images.shape == (3, 32, 32) and len(images.class_names) == 10
    assert images.labels[:50].tolist() == table["label"].to_pylist()
    for pixels, row in zip(images.get(range(50)).pixels, table["image"].to_pylist()):
        assert np.array_equal(pixels, np.asarray(Image.open(io.BytesIO(row["bytes"]))).transpose(2, 0, 1))


def _write_tar(path: Path, members: dict[str, bytes]) -> None:
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


@pytest.mark.parametrize("how", ["file", "folder", "braces", "glob"])
def test_tar_shards(how: str, tmp_path: Path, picture: Picture, encoded: Encoded, cache: str) -> None:
    for shard in range(2):
        members = {}
        for i in range(3):
            number = 3 * shard + i
            members[f"{i:03d}.png"] = encoded(picture(number))
            members[f"{i:03d}.cls" if shard == 0 else f"{i:03d}.json"] = (
                str(i).encode() if shard == 0 else json.dumps({"label": i}).encode()
            )
        _write_tar(tmp_path / f"set-{shard:02d}.tar", members)
    data = {
        "file": tmp_path / "set-00.tar",
        "folder": tmp_path,
        "braces": tmp_path / "set-{00..01}.tar",
        "glob": tmp_path / "set-*.tar",
    }[how]
    images = open_images(data, cache=cache)
    count = 3 if how == "file" else 6
    assert images.labels.tolist() == [0, 1, 2] * (count // 3)
    assert images.paths[0] == ("000.png" if how == "file" else "set-00.tar/000.png")
    _assert_pixels(images, [picture(i) for i in range(count)])


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize(("channels", "dtype"), [(3, np.uint8), (1, np.uint16)])
def test_npz(compressed: bool, channels: int, dtype: type, tmp_path: Path, picture: Picture) -> None:
    stack = np.stack([picture(i, 20, 24, channels, dtype) for i in range(150)])
    masks = stack[..., 0] > stack[..., 0].mean()
    save = np.savez_compressed if compressed else np.savez
    save(tmp_path / "set.npz", images=stack if channels > 1 else stack[..., 0], labels=np.arange(150) % 7, masks=masks)
    images = open_images(tmp_path / "set.npz")
    assert images.shape == (channels, 20, 24) and images.bits == 8 * np.dtype(dtype).itemsize
    assert images.labels.tolist() == [i % 7 for i in range(150)]
    _assert_pixels(images, list(stack))
    assert np.array_equal(images.get([149, 3]).pixels[0], stack[149].transpose(2, 0, 1))
    assert torch.equal(images.masks(5), torch.from_numpy(masks[5]))


def test_shapes_open_by_name(cache: str) -> None:
    images = open_images("shapes:100@test", cache=cache)
    assert len(images) == 100 and images.shape == (3, 32, 32) and len(images.class_names) == 10
    assert images.labels[:12].tolist() == [*range(10), 0, 1]
    assert images.masks(3).shape == (32, 32) and images.masks(3).any()
    assert torch.equal(
        torch.from_numpy(np.stack(images.get([7, 2]).pixels)),
        torch.from_numpy(np.stack(open_images("shapes:50@test", cache="off").get([7, 2]).pixels)),
    )


def test_the_fingerprint_is_of_the_content(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for place in ("one", "two", "other"):
        (tmp_path / place).mkdir()
        for i in range(3):
            (tmp_path / place / f"{i}.png").write_bytes(encoded(picture(i + 100 * (place == "other"))))
    one, two, other = (open_images(tmp_path / place).fingerprint for place in ("one", "two", "other"))
    assert one == two != other and len(one) == 64


def test_progress_is_told(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i in range(100):
        (tmp_path / f"{i:03d}.png").write_bytes(encoded(picture(i, 8, 8)))
    seen: list[tuple[int, int]] = []
    open_images(tmp_path, progress=lambda done, total: seen.append((done, total)))
    assert seen == [(64, 100), (100, 100)]


def test_what_is_no_data_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist; allowed: a folder of images"):
        open_images(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "readme.md").write_text("")
    with pytest.raises(DataError, match=r"holds no image file \(1 other file\)"):
        open_images(tmp_path / "empty")
    for kind in ("npy", "npz"):
        (tmp_path / kind).mkdir()
        for name in (f"0.{kind}", f"1.{kind}", "readme.md"):
            (tmp_path / kind / name).write_text("")
        with pytest.raises(
            DataError, match=rf"\(3 other files\); give \.{kind} arrays as one \.npz file with x of shape"
        ):
            open_images(tmp_path / kind)
    (tmp_path / "file.xyz").write_text("")
    with pytest.raises(DataError, match="is no data set"):
        open_images(tmp_path / "file.xyz")
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(DataError, match="not a readable parquet"):
        open_images(tmp_path / "bad.parquet")
    with pytest.raises(DataError, match="allowed: shapes"):
        open_images("shapes:12@tset")
    (tmp_path / "empty" / "a.png").write_text("text")
    with pytest.raises(DataError, match=r"none of the images .* first: a.png \(not an image"):
        open_images(tmp_path / "empty")
    for setting in ({"cache": "maybe"}, {"channels": 0}, {"max_bad_fraction": 2}, {"tiles": 0}):
        with pytest.raises(ConfigError, match=next(iter(setting))):
            open_images("shapes:3", **setting)
