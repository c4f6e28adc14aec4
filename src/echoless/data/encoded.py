"""How do encoded images (files, parquet, tar shards) become pixels by number: from the cache, or decoded on demand?

The name of a cache says everything that decides its pixels. Where no image was large enough to be reduced, it is that
of the images as they are: then runs that keep images at different sizes share it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from echoless.data.cache import CachedPixels, in_parallel, open_cache
from echoless.data.cache_place import CachePlace
from echoless.data.classes import folder_of, label_note, label_source
from echoless.data.content import BrokenLink, Chunk, Content, Hasher, Memory, digest, digest_of, make_content
from echoless.data.decode import DecodeSettings, Undecodable, decode, file_shape
from echoless.data.hashing import hash_all, shared_name
from echoless.data.images import BadSample, Fetched, Images
from echoless.data.jpeg import decoder_versions
from echoless.data.labels import encode_labels
from echoless.data.making import Making
from echoless.data.parts import FOLDER, SharedParts, Tell
from echoless.data.paths import ChosenPaths
from echoless.data.resample import Array
from echoless.data.resizing import Fit
from echoless.data.sources import ImageSource, chunks_between, read_or_error
from echoless.data.survey import Survey, look_at, survey_of
from echoless.data.tiling import PIXEL_LIMIT, TilesOnDemand, Tiling, remembered_shapes
from echoless.errors import DataError
from echoless.storage.atomic import can_write

# How larger images are reduced: known beforehand, or decided from what the set turns out to be.
Reduction = Fit | Callable[[Survey, int], Fit | None] | None

_THREADS = 4
_WORTH_A_THREAD = 112 * 112  # pixels; threads that decode smaller images pass the interpreter lock around, and no more
_AGAIN = "every epoch decodes the images again (a smaller --cache-side needs less)"
_AGAIN_FOR_TILES = "tiles are cut from their files when they are needed, which is slow in random order"
_DECODED_AT_ONCE = 2**21  # bytes of one piece of work; more would grow the heap, not only the queue
_ALONE = 2**24  # pixels of a file: several that large, decoded at once, would fill the memory


class OnDemand:
    """Pixels decoded when they are asked for; small ones by one thread at a time, whoever asks."""

    def __init__(self, source: ImageSource, settings: DecodeSettings, content: Content, small: bool) -> None:
        self._source, self._settings, self._content = source, settings, content
        self._turn: AbstractContextManager[object] = threading.Lock() if small else nullcontext()

    def fetch(self, ids: Array) -> Fetched:
        with self._turn:
            return [read_and_decode(self._source, self._settings, self._content, int(index)) for index in ids]


def open_encoded(
    source: ImageSource,
    wanted: DecodeSettings,
    place: CachePlace,
    *,
    max_bad_fraction: float,
    reduction: Reduction = None,
) -> Images:
    """Whole images, larger ones reduced."""
    memory = Memory(place.root, source.stamps, getattr(source, "selection", ""))
    content = _known_content(source, place, memory)
    survey = None
    if reduction is not None and not isinstance(reduction, Fit):
        survey = look_at(source, wanted)
        reduction = reduction(survey, len(source.paths))
    wanted = replace(wanted, reduction=reduction)
    pixels = _find_cache(content, wanted, place) if content and place.choice != "off" else None
    if content is not None and pixels is not None:
        return _images(source, pixels, survey_of(pixels, source, wanted), content, max_bad_fraction)
    survey = (survey or look_at(source, wanted)).reduced_by(reduction)
    store, content, note = _decoded(_Job(source, _named_as(wanted, survey), survey, place, memory), content)
    return _images(source, store, survey, content, max_bad_fraction, note=note, reduction=reduction)


def _images(
    source: ImageSource,
    store: CachedPixels | OnDemand,
    survey: Survey,
    content: Content,
    max_bad_fraction: float,
    *,
    note: str = "",
    reduction: Fit | None = None,
) -> Images:
    labels, class_names = encode_labels(source.labels, source.class_names)
    if isinstance(store, CachedPixels):
        note, reduction = store.note, _reduction_of(store)
    return Images(
        pixels=store,
        paths=source.paths,
        shape=survey.shape,
        bits=survey.bits,
        fingerprint=content.fingerprint,
        digests_ND=content.digests_ND,
        labels=labels,
        class_names=class_names,
        label_source=label_source(source),
        label_note=label_note(source),
        folder=folder_of(source),
        bad=list(store.bad) if isinstance(store, CachedPixels) else [],
        max_bad_fraction=max_bad_fraction,
        cache_note=note,
        file_shape=survey.file_shape,
        file_channels=survey.file_channels,
        reduction=reduction,
        sizes_N2=store.index[:, 1:3] if isinstance(store, CachedPixels) else None,
    )


def _known_content(source: ImageSource, place: CachePlace, memory: Memory) -> Content | None:
    """What the images are: remembered, or read now. None where decoding will read them all anyway."""
    content = memory.recall(source.paths)
    if content is None and (place.choice == "off" or memory.exists):
        content = _read_content(source, place, memory)
    return content


def _read_content(source: ImageSource, place: CachePlace, memory: Memory) -> Content:
    """What the images are: every one is read."""

    def hash_range(first: int, last: int, tell: Tell) -> Hasher:
        hasher = Hasher()
        for start, blobs in hasher.passing(chunks_between(source, first, last)):
            tell(start + len(blobs) - first)
        return hasher

    return make_content(source.paths, hash_all(place, memory, len(source.paths), hash_range).digests)


def _key(content: Content, wanted: DecodeSettings) -> str:
    """Everything that decides the decoded pixels."""
    return digest([content.fingerprint, repr(wanted), *decoder_versions()])


def _named_as(wanted: DecodeSettings, survey: Survey) -> DecodeSettings:
    """What names the cache. Who asks for the channels that the files have shares it with those who ask for none."""
    return replace(wanted, channels=None) if wanted.channels == survey.file_channels else wanted


def _find_cache(content: Content, wanted: DecodeSettings, place: CachePlace) -> CachedPixels | None:
    """A cache of these pixels, under either name (`_named_as`)."""
    for settings in dict.fromkeys((replace(wanted, channels=None), wanted)):
        found = _of_reduction(content, settings, place)
        if found is not None and wanted.channels in (None, found.channels):
            return found
    return None


def _of_reduction(content: Content, wanted: DecodeSettings, place: CachePlace) -> CachedPixels | None:
    """Of this reduction, or of whole images none of which it would change."""
    found = open_cache(place.root, _key(content, wanted))
    if found is not None or wanted.reduction is None:
        return found
    whole = open_cache(place.root, _key(content, replace(wanted, reduction=None)))
    if whole is None or any(wanted.reduction.shrinks(*size) for size in whole.sizes):
        return None
    return whole


def _reduction_of(pixels: CachedPixels) -> Fit | None:
    kept = pixels.about.get("reduction")
    return None if kept is None else Fit(kept["kind"], tuple(kept["size"]), kept["filter"])


@dataclass
class _Job:
    """A set that is decoded for the first time."""

    source: ImageSource
    wanted: DecodeSettings
    survey: Survey
    place: CachePlace
    memory: Memory

    def __post_init__(self) -> None:
        self.hasher = Hasher()
        self.reduced = False  # whether any image was large enough for that

    @cached_property
    def settings(self) -> DecodeSettings:
        return replace(self.wanted, channels=self.survey.shape.channels, bits=self.survey.bits)

    @cached_property
    def small(self) -> bool:
        return self.survey.shape.height * self.survey.shape.width < _WORTH_A_THREAD

    @cached_property
    def content(self) -> Content:
        """Once everything was read."""
        return make_content(self.source.paths, self.hasher.digests)

    @property
    def making(self) -> Making:
        work = repr((self.settings, self.wanted, decoder_versions()))
        return Making(
            units=len(self.source.paths),
            produce=self.produce,
            key=self.key,
            name=shared_name(work, self.place, self.memory),
            about=self.about,
            found=lambda: self.hasher.found() | {"reduced": self.reduced},
            learn=self.learn,
        )

    def learn(self, found: list[dict[str, Any]]) -> None:
        self.hasher = Hasher.joined(found)
        self.reduced = any(each["reduced"] for each in found)
        self.__dict__.pop("content", None)

    def produce(self, first: int, last: int) -> Iterator[list[Array | BadSample]]:
        self.hasher, self.reduced = Hasher(), False
        decoded = in_parallel(self._decode_chunk, self._pieces(first, last), 0 if self.small else _THREADS)
        for images in decoded:
            self.reduced = self.reduced or any(self._may_be_reduced(image) for image in images)
            yield images

    def _pieces(self, begin: int, end: int) -> Iterator[Chunk]:
        """The chunks of the source, so small that what is decoded ahead stays in memory."""
        most = max(1, int(_DECODED_AT_ONCE / max(self.survey.bytes_per_image, 1)))
        for first, blobs in self.hasher.passing(chunks_between(self.source, begin, end)):
            for start in range(0, len(blobs), most):
                yield first + start, blobs[start : start + most]

    def key(self) -> str:
        return _key(self.content, self.wanted if self.reduced else replace(self.wanted, reduction=None))

    def about(self) -> dict[str, Any]:
        """What the cache says of itself beside its shape; asked for when everything was decoded."""
        fit = self.wanted.reduction if self.reduced else None
        return {} if fit is None else {"reduction": {"kind": fit.kind, "size": list(fit.size), "filter": fit.filter}}

    def _may_be_reduced(self, image: Array | BadSample) -> bool:
        fit = self.wanted.reduction
        return fit is not None and not isinstance(image, BadSample) and fit.shrinks(*image.shape[1:])

    def _decode_chunk(self, chunk: Chunk) -> list[Array | BadSample]:
        first, blobs = chunk
        return [decode_or_bad(self.source, self.settings, first + i, data) for i, data in enumerate(blobs)]


def _decoded(job: _Job, content: Content | None) -> tuple[CachedPixels | OnDemand, Content, str]:
    """The pixels, in the cache where that pays, and what the images are; the note says why there is no cache."""
    pixels, note = job.place.build(job.making, job.survey, len(job.source.paths), otherwise=_AGAIN)
    if pixels is not None:
        job.memory.keep(job.hasher)
        return pixels, job.content, note
    content = content or _read_content(job.source, job.place, job.memory)
    return OnDemand(job.source, job.settings, content, job.small), content, note


def open_tiles(
    source: ImageSource, wanted: DecodeSettings, place: CachePlace, size: int, *, max_bad_fraction: float
) -> Images:
    """Every file cut into tiles, each an image of its own; they are never reduced."""
    memory = Memory(place.root, source.stamps, getattr(source, "selection", ""))
    wanted = replace(wanted, pixel_limit=PIXEL_LIMIT)
    files = memory.recall(source.paths) or _read_content(source, place, memory)
    read_by = digest([files.fingerprint, *decoder_versions()])
    shapes_F2 = remembered_shapes(
        place.root, read_by, len(source.paths), lambda: _shapes(source, wanted, place, read_by)
    )
    tiling = Tiling.of(shapes_F2, size)
    if (note := tiling.note(shapes_F2)) and place.say is not None:
        place.say(note)
    content = tiling.content(files)
    found, note = (_find_cache(content, wanted, place) if place.choice != "off" else None), ""
    store: CachedPixels | TilesOnDemand
    if found is not None:
        store, survey = found, survey_of(found, source, wanted)
    else:
        survey = look_at(source, wanted).reduced_by(None)
        key = _key(content, _named_as(wanted, survey))
        store, note = _cut(source, files, wanted, place, survey, tiling, key)
    labels, class_names = encode_labels(source.labels, source.class_names)
    return Images(
        pixels=store,
        paths=ChosenPaths(source.paths, tiling.file_N),
        shape=survey.shape._replace(height=min(size, survey.shape.height), width=min(size, survey.shape.width)),
        bits=survey.bits,
        fingerprint=content.fingerprint,
        digests_ND=content.digests_ND,
        labels=None if labels is None else labels[tiling.file_N],
        class_names=class_names,
        label_source=label_source(source),
        label_note=label_note(source),
        folder=folder_of(source),
        bad=list(store.bad) if isinstance(store, CachedPixels) else [],
        max_bad_fraction=max_bad_fraction,
        cache_note=store.note if isinstance(store, CachedPixels) else note,
        file_shape=survey.file_shape,
        file_channels=survey.file_channels,
        corners_N2=tiling.corners_N2,
        files=len(source.paths),
        file_digests_ND=files.digests_ND[tiling.file_N],
    )


def _cut(
    source: ImageSource,
    files: Content,
    wanted: DecodeSettings,
    place: CachePlace,
    survey: Survey,
    tiling: Tiling,
    key: str,
) -> tuple[CachedPixels | TilesOnDemand, str]:
    """All tiles, in the cache where they fit; a file at a time, because one may fill much of the memory."""
    settings = replace(wanted, channels=survey.shape.channels, bits=survey.bits)

    def cut(file: int) -> list[Array | BadSample]:
        data = read_or_error(source, file)
        if digest_of(data) != files.digests_ND[file].tobytes():  # the cache is named by what was read before
            raise DataError(f"{source.paths[file]} changed while it was read, or cannot be read any more; try again")
        image = decode_or_bad(source, settings, file, data)
        return [tiling.cut(number, image) for number in tiling.numbers(file)]

    def produce(first: int, last: int) -> Iterator[list[Array | BadSample]]:
        large = max(height * width for height, width in survey.files) > _ALONE
        return in_parallel(cut, range(first, last), 0 if large else _THREADS)

    per_tile = survey.bytes_per_image * len(source.paths) / len(tiling.file_N)
    survey = survey._replace(bytes_per_image=per_tile)
    making = Making(units=len(source.paths), produce=produce, key=lambda: key)
    pixels, note = place.build(making, survey, len(tiling.file_N), otherwise=_AGAIN_FOR_TILES)
    if pixels is not None:
        return pixels, note
    return TilesOnDemand(tiling, lambda file: read_and_decode(source, settings, files, file)), note


def _shapes(source: ImageSource, wanted: DecodeSettings, place: CachePlace, name: str) -> list[tuple[int, int] | None]:
    """Of every file."""
    count = len(source.paths)
    if place.share.count == 1 or not can_write(place.root):
        return [_shape(source, wanted, file) for file in range(count)]
    parts = SharedParts(place.root / f"{FOLDER}{digest(['shapes', name])[:32]}", count, place.share)
    records = parts.finish(
        lambda first, last, _, tell: {"shapes": [_shape(source, wanted, file) for file in range(first, last)]},
        place.progress,
    )
    return [None if shape is None else (shape[0], shape[1]) for record in records for shape in record["shapes"]]


def _shape(source: ImageSource, settings: DecodeSettings, file: int) -> tuple[int, int] | None:
    """Height and width; 0 x 0 for what is no image, None for what cannot be read now."""
    data = read_or_error(source, file)
    if isinstance(data, OSError):
        return (0, 0) if isinstance(data, BrokenLink) else None
    try:
        return file_shape(data, settings)
    except Undecodable:
        return 0, 0


def read_and_decode(source: ImageSource, settings: DecodeSettings, content: Content, index: int) -> Array | BadSample:
    """The image that was hashed. Another one in its place would pass for it in every number and cache."""
    data = read_or_error(source, index)
    if not isinstance(data, OSError) and digest_of(data) != content.digests_ND[index].tobytes():
        return BadSample(index, source.paths[index], "it changed after the data set was opened")
    return decode_or_bad(source, settings, index, data)


def decode_or_bad(
    source: ImageSource, settings: DecodeSettings, index: int, data: bytes | OSError
) -> Array | BadSample:
    if isinstance(data, OSError):
        return BadSample(index, source.paths[index], str(data.strerror or data))
    try:
        return decode(data, settings)
    except Undecodable as error:
        return BadSample(index, source.paths[index], str(error))
