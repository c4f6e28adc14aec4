"""How does DATA, a path or a name, become an `Images`?

Recognise the kind, look at a few images to learn the set's channels and depth, then decode everything once into the
cache (which also finds every bad file before the first step), or decode on demand where a cache does not pay.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from echoless.config.addresses import is_remote, local_path
from echoless.config.counts import counted, joined
from echoless.data.arrays import ArrayFile
from echoless.data.arrow_files import ArrowSource
from echoless.data.cache import CachedPixels, default_cache_dir, in_parallel, open_cache
from echoless.data.cache_place import CacheChoice, CachePlace, Progress, Say
from echoless.data.channels import converted_note, with_channels
from echoless.data.classes import read_class_list, select_classes
from echoless.data.content import Content, Memory, digest, make_content
from echoless.data.decode import DecodeSettings
from echoless.data.elsewhere import Kind, open_remote
from echoless.data.encoded import Reduction, open_encoded, open_tiles
from echoless.data.hashing import hash_all
from echoless.data.images import BadSample, Images, Shape
from echoless.data.label_file import FoundLabels, read_label_file, require_columns
from echoless.data.labels import encode_labels, known_labels
from echoless.data.making import Making
from echoless.data.parquet import ParquetSource
from echoless.data.paths import NumberedPaths
from echoless.data.resample import Array
from echoless.data.shards import TarSource, expand, fixed_part
from echoless.data.sources import FolderSource, ImageSource, count_image_files, is_image_name
from echoless.data.survey import Survey
from echoless.data.synthetic import CLASS_NAMES, Shapes, parse_shapes
from echoless.errors import ConfigError, DataError
from echoless.runtime import ALONE, Share

NO_LABELS = "none"  # as a labels file: the labels of the data, such as sub-folders, are not used
LABELS_FILE = "a labels file"  # where labels come from that were joined by path
_THREADS = 4
_CHUNK = 64
_SMALLEST_TILE = 8


def open_images(
    data: str | Path,
    *,
    labels: Path | None = None,
    classes: Path | str | None = None,
    require_labels: bool = True,
    cache: CacheChoice = "auto",
    cache_dir: Path | None = None,
    channels: int | None = None,
    max_bad_fraction: float = 0.01,
    reduction: Reduction = None,
    tiles: int | None = None,
    progress: Progress | None = None,
    say: Say | None = None,
    share: Share = ALONE,
) -> Images:
    """A folder, parquet, tar shards, .npz or `shapes` as a set of images, here or, for parquet and tar, at an address
    that fsspec opens; see `echoless.data` for the rules.

    labels: a file of (path, label), .csv or .parquet, or "none" to ignore those of the data.
    channels: what every image is converted to (default: what most images have). max_bad_fraction: above this share of
    unusable images the set is refused. reduction: how image files that are larger are made smaller (default: they are
    kept as they are). tiles: cut image files into squares of this side, each an image of its own; they are not reduced.
    say: gets a sentence on files that are no images, on images that are smaller than a tile, on channels that were
    converted, and on caches that had to go or have no room. classes: a file with
    the names of the classes to use, or `imagenet100`; without `require_labels` it does not concern images that have
    none. share: with how many processes, which all call this, images that are not in the cache yet are decoded.
    """
    _check(cache, channels, max_bad_fraction, tiles)
    tell = _Teller(say)
    place = CachePlace(cache, cache_dir or default_cache_dir(), progress, tell, share)
    names, listed = None if classes is None else read_class_list(classes), None
    given = None if str(labels) == NO_LABELS else labels
    require_columns(given)
    shapes = parse_shapes(str(data))
    arrays = _is_arrays(data)
    if arrays or shapes is not None:
        _require_files(data, tiles=tiles, classes=classes)
    if shapes is not None:
        images = with_channels(_open_shapes(shapes, place), channels)
    elif arrays:
        images = with_channels(_open_arrays(ArrayFile(Path(data)), place, max_bad_fraction), channels)
    else:
        source, wanted = find_source(str(data), place), DecodeSettings(channels=channels)
        for line in source.passed_over if isinstance(source, FolderSource) else ():
            tell(line)
        if names is not None and (require_labels or given is not None or source.labels is not None):
            source, listed = _of_classes(source, names, given)
        if tiles is None:
            images = open_encoded(source, wanted, place, reduction=reduction, max_bad_fraction=max_bad_fraction)
        else:
            images = open_tiles(source, wanted, place, tiles, max_bad_fraction=max_bad_fraction)
    if labels is not None:
        _replace_labels(images, given, listed)
    if note := converted_note(images):
        tell(note)
    images.notes = tuple(tell.told)
    return images


def _of_classes(source: ImageSource, names: Sequence[str], file: Path | None) -> tuple[ImageSource, FoundLabels | None]:
    """The images of these classes, by their own labels or those of a file; and what that file says of all images."""
    folder = source.root if isinstance(source, FolderSource) else None
    listed = read_label_file(file, source.paths, folder) if file else None
    return select_classes(source, names, None if listed is None else listed.labels), listed


def _replace_labels(images: Images, file: Path | None, selected: FoundLabels | None) -> None:
    """By those of a file, or by none. selected: what it says of all images, where those of some classes were taken."""
    if file is None:
        images.labels, images.class_names, images.label_source, images.label_note = None, None, "", ""
        return
    found = selected or read_label_file(file, images.paths, images.folder)
    if selected is None:
        images.labels, images.class_names = encode_labels(found.labels, None)
    images.label_note = "; ".join(filter(None, [found.note, _of_unreadable(images, file)]))
    images.label_source, images.label_file = LABELS_FILE, file.name


def _of_unreadable(images: Images, file: Path) -> str:
    """Which labels are not used. They stay in the set of labels and its classes, as those of sub-folders do: without a
    cache nobody knows yet which images cannot be read, and the set must be the same on every machine."""
    assert images.labels is not None
    found = [sample for sample in images.bad if images.labels[sample.index] >= 0]
    if not found:
        return ""
    many = f"{counted(len(found), 'label')} of {file.name}"
    of = "an unreadable image," if len(found) == 1 else "unreadable images, first"
    return f"{many} left out, of {of} {found[0].path!r}"


class _Teller:
    """Passes sentences on to `say`, where there is one, and keeps them."""

    def __init__(self, say: Say | None) -> None:
        self._say, self.told = say, list[str]()

    def __call__(self, text: str) -> None:
        self.told.append(text)
        if self._say is not None:
            self._say(text)


def holds_files(data: str | Path) -> bool:
    """Whether these are encoded image files, and not drawn on the spot or decoded already."""
    return parse_shapes(str(data)) is None and not _is_arrays(data)


def _is_arrays(data: str | Path) -> bool:
    return Path(data).suffix == ".npz" and Path(data).is_file()


def _require_files(data: str | Path, **options: object) -> None:
    """Refuses options that concern image files."""
    for name, value in options.items():
        if value is not None:
            allowed = "a folder, .parquet or .tar"
            raise ConfigError(f"{name} is {value}, but {data} holds no image files; allowed: {allowed}")


def find_source(data: str, place: CachePlace) -> ImageSource:
    """The source of encoded images that `data` names: a folder, shards, or image files by name or by a pattern."""
    if is_remote(data):
        return open_remote(data, {suffix: kind for suffix, kind in SOURCES.items() if suffix != ".arrow"}, place)
    data = local_path(data)
    path = Path(data)
    if path.is_dir():
        return _find_in_folder(path)
    files = [path] if path.is_file() else expand(data)
    for suffix, kind in SOURCES.items():
        if files and all(file.suffix == suffix for file in files):
            _require_regular(data, files)
            return kind(files)
    root = fixed_part(data)
    if root.is_dir() and any(is_image_name(file.name) for file in files):
        return FolderSource(root, only={str(file.relative_to(root)) for file in files})
    _require_regular(data, files)
    found = "does not exist" if not files else "is no data set"
    raise DataError(
        f"data {data!r} {found}; allowed: a folder of images, .parquet, .tar, .npz, or shapes[:COUNT][@SPLIT]"
    )


def _require_regular(data: str, files: Sequence[Path]) -> None:
    special = next((file for file in files if not file.is_file()), None)
    if special is not None:
        raise DataError(f"data {data!r} names {special}, which is a folder, a pipe or a device; allowed: regular files")


# Files that hold many images, by suffix; a format from outside is added here.
SOURCES: dict[str, Kind] = {".parquet": ParquetSource, ".tar": TarSource, ".arrow": ArrowSource}


def _find_in_folder(folder: Path) -> ImageSource:
    """Shards of one kind, or image files; a folder that holds several kinds is refused, because one would be lost."""
    visible = [name for name in os.listdir(folder) if not name.startswith(".")]  # noqa: PTH208 (millions of files)
    shards = {suffix: sorted(folder / name for name in visible if name.endswith(suffix)) for suffix in SOURCES}
    found = {f"*{suffix}": len(files) for suffix, files in shards.items() if files}
    if not found:
        _refuse_splits(folder)
        return FolderSource(folder)
    if images := count_image_files(folder):
        found["image files"] = images
    if len(found) > 1:
        counts = joined([f"{count} {kind}" for kind, count in found.items()])
        patterns = [f"'{folder}/{kind}'" for kind in found if kind.startswith("*")]
        patterns += [f"'{folder}/**/*' for the image files"] if images else []
        raise DataError(f"{folder} holds {counts}, but only one kind can be read; give {' or '.join(patterns)}")
    (suffix,) = (suffix for suffix, files in shards.items() if files)
    return SOURCES[suffix](shards[suffix])


def _refuse_splits(folder: Path) -> None:
    """A folder of Hugging Face datasets with several splits: training on all of them would include the test set."""
    if (folder / "dataset_dict.json").is_file():
        splits = sorted(file.parent.name for file in folder.glob("*/state.json"))
        raise DataError(f"{folder} holds the splits {', '.join(splits)}; name one, such as {folder / splits[0]}")


def _open_shapes(shapes: Shapes, place: CachePlace) -> Images:
    fingerprint = digest(shapes.identity())
    survey = Survey(Shape(3, shapes.size, shapes.size), 8, 3.0 * shapes.size**2, ((shapes.size, shapes.size),), 3)
    labels, _ = encode_labels(shapes.labels().tolist(), CLASS_NAMES)
    paths = NumberedPaths(f"shapes/{shapes.split}/", len(shapes))
    common: dict[str, Any] = {"paths": paths, "fingerprint": fingerprint, "labels": labels, "class_names": CLASS_NAMES}
    common |= {"mask_of": shapes.mask, "label_source": "the data set"}

    def produce(first: int, last: int) -> Iterator[list[Array | BadSample]]:
        chunks = (np.arange(start, min(start + _CHUNK, last)) for start in range(first, last, _CHUNK))
        return in_parallel(lambda ids: list(shapes.fetch(ids)), chunks, _THREADS)

    key = digest([fingerprint, "drawn"])
    pixels = open_cache(place.root, key) if place.choice != "off" else None
    note = ""
    if pixels is None:
        pixels, note = place.build(Making(units=len(shapes), produce=produce, key=lambda: key), survey, len(shapes))
    if pixels is None:
        return Images(pixels=shapes, shape=survey.shape, bits=8, cache_note=note, **common)
    return _from_cache(pixels, common)


def _hash_arrays(file: ArrayFile, paths: Sequence[str], place: CachePlace, memory: Memory) -> Content:
    return make_content(paths, hash_all(place, memory, 1, lambda first, last, tell: file.hash()).digests)


def _open_arrays(file: ArrayFile, place: CachePlace, max_bad_fraction: float) -> Images:
    paths = NumberedPaths(f"{file.path.name}/", len(file))
    # Earlier versions remembered the hashes of floats as 8 bit.
    memory = Memory(place.root, file.stamps, "16 bit" if file.made_of_floats else "")
    content = memory.recall(paths) or _hash_arrays(file, paths, place, memory)
    height, width = file.header.shape[1:3]
    decoded = file.channels * height * width * file.bits / 8
    shape = Shape(file.channels, height, width)
    survey = Survey(shape, file.bits, decoded, ((height, width),), file.channels)
    labels, class_names = encode_labels(None if file.labels is None else known_labels(file.labels.tolist()), None)
    common: dict[str, Any] = {
        "paths": paths,
        "fingerprint": content.fingerprint,
        "digests_ND": content.digests_ND,
        "labels": labels,
        "class_names": class_names,
        "label_source": "the data set",
        "max_bad_fraction": max_bad_fraction,
        "mask_of": None if file.masks is None else file.masks.__getitem__,
    }
    if file.mapped is None:
        key, note = digest([content.fingerprint, "npz"]), ""
        pixels = open_cache(place.root, key) if place.choice != "off" else None
        if pixels is None:
            # A compressed member can only be read from its beginning: one process does it, the others wait.
            making = Making(units=1, produce=lambda first, last: file.stream(), key=lambda: key)
            pixels, note = place.build(making, survey, len(file))
        if pixels is not None:
            return _from_cache(pixels, common)
        raise DataError(
            f"{file.path} is compressed and {note}; enable the cache, or save with np.savez instead of savez_compressed"
        )
    note = "no cache: the file holds decoded pixels already"
    return Images(pixels=file, shape=survey.shape, bits=survey.bits, cache_note=note, **common)


def _from_cache(pixels: CachedPixels, common: dict[str, Any]) -> Images:
    about = pixels.about
    bad, note = list(pixels.bad), pixels.note
    return Images(pixels=pixels, shape=Shape(*about["shape"]), bits=about["bits"], bad=bad, cache_note=note, **common)


def _check(cache: str, channels: int | None, max_bad_fraction: float, tiles: int | None) -> None:
    if cache not in ("auto", "on", "off"):
        raise ConfigError(f"cache is {cache!r}; allowed: auto, on, off")
    if channels is not None and channels < 1:
        raise ConfigError(f"channels is {channels}; allowed: 1 or more")
    if not 0 <= max_bad_fraction <= 1:
        raise ConfigError(f"max_bad_fraction is {max_bad_fraction}; allowed: 0 to 1")
    if tiles is not None and tiles < _SMALLEST_TILE:
        raise ConfigError(f"tiles is {tiles}; allowed: {_SMALLEST_TILE} or more")
