"""How does DATA, a path or a name, become an `Images`?

Recognise the kind, look at a few images to learn the set's channels and depth, then decode everything once into the
cache (which also finds every bad file before the first step), or decode on demand where a cache does not pay.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from echoless.data.arrays import ArrayFile
from echoless.data.cache import CachedPixels, build_cache, default_cache_dir, in_parallel, open_cache
from echoless.data.classes import SelectedSource, read_class_list, select_classes
from echoless.data.content import Content, Hasher, Memory, digest, make_content
from echoless.data.decode import SHORT_SIDE, DecodeSettings, Undecodable, decode
from echoless.data.eviction import LIMIT, cache_limit, make_room
from echoless.data.images import BadSample, Fetched, Images, Shape
from echoless.data.jpeg import decoder_versions
from echoless.data.labels import encode_labels, read_label_file
from echoless.data.parquet import ParquetSource
from echoless.data.resample import Array
from echoless.data.shards import TarSource, expand
from echoless.data.sources import FolderSource, ImageSource, count_image_files
from echoless.data.survey import Survey, look_at, survey_of
from echoless.data.synthetic import CLASS_NAMES, Shapes, parse_shapes
from echoless.errors import ConfigError, DataError

CacheChoice = Literal["auto", "on", "off"]
Progress = Callable[[int, int], None]  # (images done, images in all)
Say = Callable[[str], None]

_THREADS = 4
_WORTH_A_THREAD = 112 * 112  # pixels; threads that decode smaller images pass the interpreter lock around, and no more
_CHUNK = 64


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
    short_side: int = SHORT_SIDE,
    progress: Progress | None = None,
    say: Say | None = None,
) -> Images:
    """A folder, parquet, tar shards, .npz or `shapes` as a set of images; see `echoless.data` for the rules.

    channels: what every image is converted to (default: what most images have). max_bad_fraction: above this share of
    unusable images the set is refused. short_side: larger images are kept at this short side. say: gets a sentence
    where older caches had to go. classes: a file with the names of the classes to use, or `imagenet100`;
    without `require_labels` it does not concern images that have none.
    """
    _check(cache, channels, max_bad_fraction, short_side)
    place = _CachePlace(cache, cache_dir or default_cache_dir(), progress, say)
    names = None if classes is None else read_class_list(classes)
    shapes = parse_shapes(str(data))
    arrays = Path(data).suffix == ".npz" and Path(data).is_file()
    if names is not None and (shapes is not None or arrays):
        raise DataError(f"classes are given, but {data} holds no image files; allowed: folders, parquet and tar files")
    if shapes is not None:
        images = _open_shapes(shapes, place)
    elif arrays:
        images = _open_arrays(ArrayFile(Path(data)), place, max_bad_fraction)
    else:
        wanted = DecodeSettings(channels=channels, short_side=short_side)
        source = find_source(str(data))
        if names is not None and (require_labels or labels is not None or source.labels is not None):
            source = select_classes(source, names, read_label_file(labels, source.paths) if labels else None)
        images = _open_encoded(source, wanted, place, max_bad_fraction)
    if labels is not None:
        if names is None:
            images.labels, images.class_names = encode_labels(read_label_file(labels, images.paths), None)
        images.label_source = "a labels file"
    return images


class _CachePlace(NamedTuple):
    choice: CacheChoice
    root: Path
    progress: Progress | None
    say: Say | None


def find_source(data: str) -> ImageSource:
    """The source of encoded images that `data` names."""
    path = Path(data)
    if path.is_dir():
        return _find_in_folder(path)
    files = [path] if path.is_file() else expand(data)
    special = next((file for file in files if not file.is_file()), None)
    if special is not None:
        raise DataError(f"data {data!r} names {special}, which is a folder, a pipe or a device; allowed: regular files")
    for suffix, kind in SOURCES.items():
        if files and all(file.suffix == suffix for file in files):
            return kind(files)
    found = "does not exist" if not files else "is no data set"
    raise DataError(
        f"data {data!r} {found}; allowed: a folder of images, .parquet, .tar, .npz, or shapes[:COUNT][@SPLIT]"
    )


# Files that hold many images, by suffix; a format from outside is added here.
SOURCES: dict[str, Callable[[list[Path]], ImageSource]] = {".parquet": ParquetSource, ".tar": TarSource}


def _find_in_folder(folder: Path) -> ImageSource:
    """Shards of one kind, or image files; a folder that holds several kinds is refused, because one would be lost."""
    visible = sorted(file for file in folder.iterdir() if not file.name.startswith("."))
    shards = {suffix: [file for file in visible if file.suffix == suffix] for suffix in SOURCES}
    found = {f"*{suffix}": len(files) for suffix, files in shards.items() if files}
    if not found:
        return FolderSource(folder)
    if images := count_image_files(folder):
        found["image files"] = images
    if len(found) > 1:
        counts = " and ".join(f"{count} {kind}" for kind, count in found.items())
        pattern = next(iter(found))
        raise DataError(
            f"{folder} holds {counts}; name one kind, such as '{folder}/{pattern}', or a folder with one kind alone"
        )
    (suffix,) = (suffix for suffix, files in shards.items() if files)
    return SOURCES[suffix](shards[suffix])


class OnDemand:
    """Pixels decoded when they are asked for; small ones by one thread at a time, whoever asks."""

    def __init__(self, source: ImageSource, settings: DecodeSettings, small: bool) -> None:
        self._source, self._settings = source, settings
        self._turn: AbstractContextManager[object] = threading.Lock() if small else nullcontext()

    def fetch(self, ids: Array) -> Fetched:
        with self._turn:
            return [self._one(int(index)) for index in ids]

    def _one(self, index: int) -> Array | BadSample:
        try:
            data: bytes | OSError = self._source.read(index)
        except OSError as error:
            data = error
        return _decode_or_bad(self._source, self._settings, index, data)


def _open_encoded(source: ImageSource, wanted: DecodeSettings, place: _CachePlace, max_bad_fraction: float) -> Images:
    memory = Memory(place.root, source.stamps, getattr(source, "selection", ""))
    content = _known_content(source, place, memory)
    pixels = open_cache(place.root, _key(content, wanted)) if content and place.choice != "off" else None
    store: CachedPixels | OnDemand
    if content is not None and pixels is not None:
        store, survey, note = pixels, survey_of(pixels), ""
    else:
        survey = look_at(source, wanted)
        store, content, note = _decoded(source, wanted, survey, place, memory, content)
    labels, class_names = encode_labels(source.labels, source.class_names)
    return Images(
        pixels=store,
        paths=source.paths,
        shape=survey.shape,
        bits=survey.bits,
        fingerprint=content.fingerprint,
        digests_ND=content.digests_ND,
        labels=labels,
        class_names=class_names,
        label_source=_label_source(source),
        bad=list(store.bad) if isinstance(store, CachedPixels) else [],
        max_bad_fraction=max_bad_fraction,
        cache_note=note or f"decoded pixels are cached in {place.root / _key(content, wanted)}",
    )


def _label_source(source: ImageSource) -> str:
    whole = source.whole if isinstance(source, SelectedSource) else source
    return "sub-folders" if isinstance(whole, FolderSource) else "the data set"


def _known_content(source: ImageSource, place: _CachePlace, memory: Memory) -> Content | None:
    """What the images are: remembered, or read now. None where decoding will read them all anyway."""
    content = memory.recall(source.paths)
    if content is None and (place.choice == "off" or memory.exists):
        content = _read_content(source, place, memory)
    return content


def _read_content(source: ImageSource, place: _CachePlace, memory: Memory) -> Content:
    hasher, count = Hasher(), len(source.paths)
    for first, blobs in hasher.passing(source.chunks()):
        if place.progress is not None:
            place.progress(first + len(blobs), count)
    memory.keep(hasher)
    return make_content(source.paths, hasher.digests)


def _key(content: Content, wanted: DecodeSettings) -> str:
    """Everything that decides the decoded pixels."""
    return digest([content.fingerprint, repr(wanted), *decoder_versions()])


def _decoded(
    source: ImageSource,
    wanted: DecodeSettings,
    survey: Survey,
    place: _CachePlace,
    memory: Memory,
    content: Content | None,
) -> tuple[CachedPixels | OnDemand, Content, str]:
    """The pixels, in the cache where that pays, and what the images are; the note says why there is no cache."""
    settings = replace(wanted, channels=survey.shape.channels, bits=survey.bits)
    small = survey.shape.height * survey.shape.width < _WORTH_A_THREAD
    hasher = Hasher()

    def produce() -> Iterator[list[Array | BadSample]]:
        threads = 1 if small else _THREADS
        chunks = hasher.passing(source.chunks())
        return in_parallel(lambda chunk: _decode_chunk(source, settings, chunk), chunks, threads)

    @cache
    def read() -> Content:
        return make_content(source.paths, hasher.digests)

    pixels, note = _cached(place, lambda: _key(read(), wanted), survey, len(source.paths), produce)
    if pixels is not None:
        memory.keep(hasher)
        return pixels, read(), note
    return OnDemand(source, settings, small), content or _read_content(source, place, memory), note


def _open_shapes(shapes: Shapes, place: _CachePlace) -> Images:
    fingerprint = digest(shapes.identity())
    survey = Survey(Shape(3, shapes.size, shapes.size), 8, 3.0 * shapes.size**2)
    labels, _ = encode_labels(shapes.labels().tolist(), CLASS_NAMES)
    paths = [f"shapes/{shapes.split}/{index:08d}" for index in range(len(shapes))]
    common: dict[str, Any] = {"paths": paths, "fingerprint": fingerprint, "labels": labels, "class_names": CLASS_NAMES}
    common |= {"mask_of": shapes.mask, "label_source": "the data set"}

    def produce() -> Iterator[list[Array | BadSample]]:
        chunks = (np.arange(start, min(start + _CHUNK, len(shapes))) for start in range(0, len(shapes), _CHUNK))
        return in_parallel(lambda ids: list(shapes.fetch(ids)), chunks, _THREADS)

    key = digest([fingerprint, "drawn"])
    pixels = open_cache(place.root, key) if place.choice != "off" else None
    note = ""
    if pixels is None:
        pixels, note = _cached(place, lambda: key, survey, len(shapes), produce)
    if pixels is None:
        return Images(pixels=shapes, shape=survey.shape, bits=8, cache_note=note, **common)
    return _from_cache(pixels, place.root, common)


def _hash_arrays(file: ArrayFile, paths: Sequence[str], memory: Memory) -> Content:
    hasher = file.hash()
    memory.keep(hasher)
    return make_content(paths, hasher.digests)


def _open_arrays(file: ArrayFile, place: _CachePlace, max_bad_fraction: float) -> Images:
    paths = [f"{file.path.name}/{index:08d}" for index in range(len(file))]
    memory = Memory(place.root, file.stamps)
    content = memory.recall(paths) or _hash_arrays(file, paths, memory)
    height, width = file.header.shape[1:3]
    survey = Survey(Shape(file.channels, height, width), file.bits, file.header.bytes / len(file))
    labels, class_names = encode_labels(None if file.labels is None else file.labels.tolist(), None)
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
            pixels, note = _cached(place, lambda: key, survey, len(file), file.stream)
        if pixels is not None:
            return _from_cache(pixels, place.root / key, common)
        raise DataError(
            f"{file.path} is compressed and {note}; enable the cache, or save with np.savez instead of savez_compressed"
        )
    note = "no cache: the file holds decoded pixels already"
    return Images(pixels=file, shape=survey.shape, bits=survey.bits, cache_note=note, **common)


def _from_cache(pixels: CachedPixels, folder: Path, common: dict[str, Any]) -> Images:
    shape = Shape(*pixels.about["shape"])
    note = f"decoded pixels are cached in {folder}"
    return Images(
        pixels=pixels, shape=shape, bits=pixels.about["bits"], bad=list(pixels.bad), cache_note=note, **common
    )


def _cached(
    place: _CachePlace,
    key: Callable[[], str],
    survey: Survey,
    count: int,
    produce: Callable[[], Iterator[list[Array | BadSample]]],
) -> tuple[CachedPixels | None, str]:
    """A new cache; or None and the reason. `key` is asked for when everything was read."""
    if place.choice == "off":
        return None, "no cache: it was turned off"
    needed, disk = int(survey.bytes_per_image * count), _existing(place.root)
    limit = cache_limit(disk)
    if place.choice == "auto" and needed > limit:
        return None, f"no cache: {needed:,} bytes is more than the {limit:,} that all caches may take ({LIMIT})"
    evicted = make_room(place.root, limit - needed)
    if evicted and place.say is not None:
        place.say(evicted)
    free = shutil.disk_usage(disk).free
    if place.choice == "auto" and needed > free / 2:
        return None, f"no cache: {needed:,} bytes would take more than half of the {free:,} free at {place.root}"
    about = {"channels": survey.shape.channels, "bits": survey.bits, "shape": list(survey.shape)}
    try:
        return build_cache(place.root, key, about, _reporting(produce(), count, place.progress)), ""
    except OSError as error:
        room = f"about {needed:,} bytes needed, {free:,} free"
        reason = f"no cache: {place.root} cannot be written ({error.strerror or error}), {room}"
        if place.choice == "on":
            raise DataError(
                f"cache is 'on' but {reason}; give a cache_dir on a disk with room, or cache='off'"
            ) from None
        return None, reason


def _reporting(
    chunks: Iterator[list[Array | BadSample]], count: int, progress: Progress | None
) -> Iterator[list[Array | BadSample]]:
    done = 0
    for chunk in chunks:
        yield chunk
        done += len(chunk)
        if progress is not None:
            progress(done, count)


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.absolute().parents) if folder.exists())


def _decode_chunk(
    source: ImageSource, settings: DecodeSettings, chunk: tuple[int, list[bytes | OSError]]
) -> list[Array | BadSample]:
    first, blobs = chunk
    return [_decode_or_bad(source, settings, first + i, data) for i, data in enumerate(blobs)]


def _decode_or_bad(
    source: ImageSource, settings: DecodeSettings, index: int, data: bytes | OSError
) -> Array | BadSample:
    if isinstance(data, OSError):
        return BadSample(index, source.paths[index], str(data.strerror or data))
    try:
        return decode(data, settings)
    except Undecodable as error:
        return BadSample(index, source.paths[index], str(error))


def _check(cache: str, channels: int | None, max_bad_fraction: float, short_side: int) -> None:
    if cache not in ("auto", "on", "off"):
        raise ConfigError(f"cache is {cache!r}; allowed: auto, on, off")
    if channels is not None and channels < 1:
        raise ConfigError(f"channels is {channels}; allowed: 1 or more")
    if not 0 <= max_bad_fraction <= 1:
        raise ConfigError(f"max_bad_fraction is {max_bad_fraction}; allowed: 0 to 1")
    if short_side < 1:
        raise ConfigError(f"short_side is {short_side}; allowed: 1 or more")
