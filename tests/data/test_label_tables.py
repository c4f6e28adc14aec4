"""Tables of labels as spreadsheets and other programs write them: names of columns, places of images, other files.

Run alone: pytest tests/data/test_label_tables.py
"""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from echoless.data import open_images
from echoless.data.images import Images
from echoless.errors import DataError

NAMES = ("IMG_1.png", "b/IMG_2.png", "b/Käfer 3.JPG", "c/IMG_2.png")


@pytest.fixture
def photos(tmp_path: Path, picture: Callable, encoded: Callable) -> Path:
    for number, name in enumerate(NAMES):
        file = tmp_path / "fotos 2026" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(encoded(picture(number)))
    return tmp_path / "fotos 2026"


def labelled(photos: Path, text: str) -> Images:
    file = photos.parent / "labels.csv"
    file.write_text(text)
    return open_images(photos, labels=file)


def named(images: Images) -> dict[str, str]:
    return {path: images.class_names[n] for path, n in zip(images.paths, images.labels.tolist()) if n >= 0}


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("filename,label", "{image},{label}"),
        ("image,species", "{image},{label}"),
        ("File Name;Class", "{image};{label}"),
        ("category\tfile_path", "{label}\t{image}"),
        ("id,filename,species", "17,{image},{label}"),
        (",image_path,target", "0,{image},{label}"),
        ("class,path,label,species", "x,{image},{label},y"),
        ("name,filename,label", "x,{image},{label}"),
        ('"Filename","Label"', '"{image}","{label}"'),
    ],
)
def test_the_columns_of_a_table_may_have_the_names_of_others(photos: Path, header: str, row: str) -> None:
    """Some of these were refused, and the others were read as rows."""
    rows = [row.format(image=image, label=label) for image, label in zip(NAMES, ("ant", "bee", "bee", "ant"))]
    images = labelled(photos, "\n".join([header, *rows]))
    assert named(images) == dict(zip(NAMES, ("ant", "bee", "bee", "ant")))
    assert images.label_note == ""


@pytest.mark.parametrize(
    ("header", "row", "path", "label"),
    [
        ("Dateiname;Label", "{image};{label}", "Dateiname", "Label"),
        ("Art;Filename", "{label};{image}", "Filename", "Art"),
        ("filename,name", "{image},{label}", "filename", "name"),
        ("Datei;Art", "{image};{label}", "Datei", "Art"),
        (",file,Art", "0,{image},{label}", "file", "Art"),
    ],
)
def test_of_two_columns_the_other_one_is_the_remaining_one_and_that_is_said(
    photos: Path, header: str, row: str, path: str, label: str
) -> None:
    """One known name alone was refused, and a header without one went unsaid."""
    rows = [row.format(image=image, label=text) for image, text in zip(NAMES, ("ant", "bee", "bee", "ant"))]
    images = labelled(photos, "\n".join([header, *rows]))
    assert named(images) == dict(zip(NAMES, ("ant", "bee", "bee", "ant")))
    assert images.label_note == (
        f"labels.csv: the first row is taken for a header, {path!r} for the path and {label!r} for the label"
    )


@pytest.mark.parametrize("first", ["target", "path", "name"])
def test_a_row_of_an_image_is_no_header_whatever_its_class(photos: Path, first: str) -> None:
    for image in (NAMES[0], "elsewhere.png"):
        images = labelled(photos, f"{image},{first}\n{NAMES[1]},bee\n")
        assert named(images)[NAMES[1]] == "bee"
        assert named(images).get(NAMES[0]) == (first if image == NAMES[0] else None)
        assert "header" not in images.label_note


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        ("id,filename,remark", "'filename' is the path, and the column of the classes must be named label"),
        ("id,Datei,label", "'label' is the label, and the column of the images must be named path"),
        ("path,class,species", "of class and species, the one that counts must be named label"),
        (
            "Nr,Datei,Art",
            "with more than two, a first row must name that of the images path and that of the classes label",
        ),
    ],
)
def test_where_it_is_not_clear_what_to_rename_is_said(photos: Path, header: str, sentence: str) -> None:
    """Another column in the place of the label would be taken for the classes."""
    with pytest.raises(DataError, match=f"has the columns {', '.join(header.split(','))}; {sentence}"):
        labelled(photos, f"{header}\nx,{NAMES[0]},ant\n")
    with pytest.raises(DataError, match="has the column path alone; it needs path and label"):
        labelled(photos, "path\nIMG_1.png\n")


@pytest.mark.parametrize(
    "place", ["D:\\Daten\\fotos 2026\\", "D:/Daten/fotos 2026/", "\\\\nas\\fotos 2026\\", "/home/eva/fotos 2026/"]
)
def test_rows_of_another_machine_are_followed_into_the_folder(photos: Path, place: str) -> None:
    """They were refused, though the name of the folder is in them."""
    back = "\\" in place
    rows = [place + (name.replace("/", "\\") if back else name) for name in NAMES]
    images = labelled(photos, "path,label\n" + "".join(f"{row},{n % 2}\n" for n, row in enumerate(rows)))
    assert named(images) == {name: str(n % 2) for n, name in enumerate(NAMES)}
    where = place.replace("\\", "/")
    assert images.label_note == f"labels.csv: its rows are for images in '{where}', which is taken for '{photos}'"
    images = labelled(photos, f"{rows[0]},a\n{place}gone.png,b\n")
    assert named(images) == {NAMES[0]: "a"} and "1 of the 2 rows of" in images.label_note


def test_rows_are_not_followed_from_two_places_nor_beside_rows_of_this_machine(photos: Path) -> None:
    """One folder of that name has other images than another one."""
    rows = (f"D:\\2025\\fotos 2026\\{NAMES[0]},a\n", f"E:\\2026\\fotos 2026\\{NAMES[0]},b\n")
    with pytest.raises(DataError) as refused:
        labelled(photos, "".join(rows))
    assert str(refused.value).endswith(
        r"has no label for any of the 4 images; its first row is for 'D:\2025\fotos 2026\IMG_1.png'; paths begin "
        "inside the folder, as 'IMG_1.png'"
    )
    images = labelled(photos, f"{NAMES[1]},c\n{rows[0]}")
    assert named(images) == {NAMES[1]: "c"}
    assert images.label_note.endswith(
        r"first 'D:\2025\fotos 2026\IMG_1.png'; paths begin inside the folder, as 'IMG_1.png'"
    )
    with pytest.raises(DataError, match=r"its first row is for 'D:\\x\\y\.tif'; a path must look like 'IMG_1\.png'$"):
        labelled(photos, "D:\\x\\y.tif,a\n")


def test_names_without_their_folders_are_not_matched_and_it_is_said_where_they_are(photos: Path) -> None:
    images = labelled(photos, "IMG_1.png,a\nKäfer 3.JPG,b\n")
    assert named(images) == {"IMG_1.png": "a"}
    assert images.label_note.endswith(
        "1 of the 2 rows of " + str(photos.parent / "labels.csv") + " name no image here, first 'Käfer 3.JPG'; "
        "'Käfer 3.JPG' is found once, in 'b/', which the path must name"
    )
    with pytest.raises(DataError, match=r"'IMG_2\.png' is found 2 times, as in 'b/', which the path must name$"):
        labelled(photos, "IMG_2.png,a\n")


def workbook(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("xl/workbook.xml", "<workbook/>")


def document(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")


def archive(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as opened:
        opened.writestr("labels.csv", "path,label\nIMG_1.png,a\n")


def table(file: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"path": ["IMG_1.png"], "label": ["a"]}), file)


@pytest.mark.parametrize(
    ("name", "write", "sentence"),
    [
        ("l.xlsx", workbook, "is a spreadsheet; save it as CSV"),
        ("l.csv", workbook, "is a spreadsheet; save it as CSV"),
        ("l.ods", document, "is a spreadsheet; save it as CSV"),
        (
            "l.xls",
            lambda file: file.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
            "is a spreadsheet; save it as CSV",
        ),
        ("l.xlsx", lambda file: file.write_bytes(b"PK\x03\x04 a beginning"), "is a spreadsheet; save it as CSV"),
        ("l.zip", archive, "is a zip archive; give the CSV file that is in it"),
        ("l.pq", table, "is a parquet file; give it a name that ends in .parquet"),
        ("l.db", lambda file: file.write_bytes(b"SQLite format 3\0\1"), "is no text; give a CSV file"),
    ],
)
def test_what_is_no_text_is_refused_by_its_name_before_any_image_is_read(
    photos: Path, name: str, write: Callable[[Path], object], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workbook was a list that "has 1 lines"."""
    monkeypatch.setattr("echoless.data.opening.find_source", lambda *_: pytest.fail("an image was read"))
    write(photos.parent / name)
    with pytest.raises(DataError, match=f"labels file .*{name} {sentence}"):
        open_images(photos, labels=photos.parent / name)
