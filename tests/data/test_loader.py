"""Proves R7 (bad files drop out, named once, and nobody else moves) and the data side of R12 (elastic order)."""

from __future__ import annotations

import hashlib
import io
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from echoless.data import AugmentConfig, Batch, Images, Loader, evaluation_batches, measure_statistics, open_images
from echoless.errors import ConfigError, DataError

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]

UNREADABLE = ("empty", "truncated", "non-image")
ODD = (*UNREADABLE, "wrong extension", "CMYK", "16 bit", "bad EXIF", "animated")


def _odd_file(kind: str, image: np.ndarray) -> bytes:
    def save(picture: Image.Image, format: str, **options: object) -> bytes:
        file = io.BytesIO()
        picture.save(file, format, **options)
        return file.getvalue()

    colour = Image.fromarray(image)
    return {
        "empty": lambda: b"",
        "truncated": lambda: save(colour, "JPEG")[:400],
        "non-image": lambda: b"<html>404</html>" * 20,
        "wrong extension": lambda: save(colour, "BMP"),
        "CMYK": lambda: save(colour.convert("CMYK"), "JPEG"),
        "16 bit": lambda: save(Image.fromarray(image[:, :, 0].astype(np.uint16) * 257), "PNG"),
        "bad EXIF": lambda: save(colour, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage"),
        "animated": lambda: save(colour, "GIF", save_all=True, append_images=[colour.rotate(90)]),
    }[kind]()


@pytest.fixture
def clean_and_spoilt(tmp_path: Path, picture: Picture, encoded: Encoded) -> tuple[Path, Path, dict[str, str]]:
    """Two folders of 200 JPEGs, the same but for 20 files of eight odd kinds."""
    clean, spoilt, odd = tmp_path / "clean", tmp_path / "spoilt", {}
    clean.mkdir()
    spoilt.mkdir()
    for i in range(200):
        name = f"{i:03d}.jpg"
        image = picture(i, 24, 24)
        data = encoded(image, "JPEG", quality=90)
        (clean / name).write_bytes(data)
        if i % 10 == 3:
            odd[name] = ODD[i // 10 % len(ODD)]
            data = _odd_file(odd[name], image)
        (spoilt / name).write_bytes(data)
    return clean, spoilt, odd


def _loader(images: Images, **settings: object) -> Loader:
    defaults = {
        "size": (16, 16),
        "batch_size": 12,
        "seed": 5,
        "mean": [0.5] * images.shape.channels,
        "std": [0.25] * images.shape.channels,
        "augment": AugmentConfig(),
        "workers": 0,
    }
    return Loader(images, **(defaults | settings))  # type: ignore[arg-type]


def _ids(batches: list[Batch]) -> list[int]:
    return [int(i) for batch in batches for i in batch.ids_B]


@pytest.mark.parametrize("cache", ["on", "off"])
@pytest.mark.parametrize("workers", [0, 2])
def test_bad_files_drop_out_and_nobody_else_moves(
    cache: str, workers: int, clean_and_spoilt: tuple[Path, Path, dict[str, str]]
) -> None:
    """R7: two epochs over 200 files of which 20 are odd, in eight ways."""
    clean, spoilt, odd = clean_and_spoilt
    unreadable = {name for name, kind in odd.items() if kind in UNREADABLE}
    images = open_images(spoilt, cache=cache, max_bad_fraction=0.1)
    assert images.shape == (3, 24, 24) and images.bits == 8
    steps = 2 * (images.usable if cache == "on" else 200) // 12
    ids = _ids(list(_loader(images, workers=workers).batches(0, steps)))
    reference = open_images(clean)
    bad_ids = {i for i, path in enumerate(reference.paths) if path in unreadable}
    expected = [i for i in _ids(list(_loader(reference).batches(0, steps + 2))) if i not in bad_ids]
    assert ids == expected[: len(ids)] and len(ids) > 350
    assert sorted(sample.path for sample in images.bad) == sorted(unreadable)
    assert all(sample.reason and images.paths[sample.index] == sample.path for sample in images.bad)
    print(f"R7 cache={cache} workers={workers} odd={len(odd)} kinds=8 bad={len(images.bad)} listed_once=yes order=same")


@pytest.mark.parametrize("cache", ["on", "off"])
def test_too_many_bad_files_stop_the_run(cache: str, clean_and_spoilt: tuple[Path, Path, dict[str, str]]) -> None:
    with pytest.raises(
        DataError, match=r"of 200 images cannot be used, more than the allowed fraction 0\.01 .*\)(; first)?: "
    ):
        images = open_images(clean_and_spoilt[1], cache=cache)
        list(_loader(images).batches(0, 20))


def test_cached_and_uncached_batches_are_the_same_bits(clean_and_spoilt: tuple[Path, Path, dict[str, str]]) -> None:
    cached, direct = (open_images(clean_and_spoilt[0], cache=choice) for choice in ("on", "off"))
    for one, other in zip(_loader(cached).batches(0, 5), _loader(direct, workers=1).batches(0, 5)):
        assert torch.equal(one.images_BCHW, other.images_BCHW) and torch.equal(one.ids_B, other.ids_B)


def _log(images: Images, world: int, workers: int, first: int, last: int) -> list[tuple[int, int, int, str]]:
    """(step, position in the global batch, id, hash of the crop) of every sample, ranks put together."""
    loaders = [_loader(images, workers=workers, rank=rank, world=world) for rank in range(world)]
    lines = []
    for parts in zip(*(loader.batches(first, last) for loader in loaders)):
        samples = [(int(i), image) for part in parts for i, image in zip(part.ids_B, part.images_BCHW)]
        for position, (index, image) in enumerate(samples):
            lines.append((parts[0].step, position, index, hashlib.sha256(image.numpy().tobytes()).hexdigest()))
    return lines


@pytest.mark.parametrize("kind", ["one size", "many sizes"])
def test_order_and_crops_are_elastic(kind: str, tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    """R12: world {1, 2} x workers {0, 1, 2} x resumption at every step give one and the same log."""
    if kind == "one size":
        images = open_images("shapes:50")
    else:
        for i in range(50):
            (tmp_path / f"{i:02d}.png").write_bytes(encoded(picture(i, 20 + i % 9, 40 - i % 11)))
        images = open_images(tmp_path)
    reference = _log(images, 1, 0, 0, 9)
    assert len(reference) == 9 * 12
    compared = 0
    for world in (1, 2):
        for workers in (0, 1, 2):
            for first in range(9):
                assert _log(images, world, workers, first, 9) == [line for line in reference if line[0] >= first]
                compared += 1
    print(f"R12 {kind}: worlds=2 workers=3 resumes=9 runs={compared} mismatches=0")


def test_seeds_and_epochs_see_other_crops() -> None:
    images = open_images("shapes:24")
    batches = list(_loader(images).batches(0, 4))
    assert sorted(_ids(batches[:2])) == sorted(_ids(batches[2:])) == list(range(24))
    crops = {hashlib.sha256(i.numpy().tobytes()).hexdigest() for batch in batches for i in batch.images_BCHW}
    assert len(crops) == 48
    assert not torch.equal(_loader(images, seed=6).batch(0).images_BCHW, batches[0].images_BCHW)


def test_batches_carry_labels_and_waiting_time() -> None:
    images = open_images("shapes:40")
    for batch in _loader(images, workers=2).batches(3, 6):
        assert batch.labels_B.tolist() == [i % 10 for i in batch.ids_B.tolist()]
        assert batch.images_BCHW.shape == (12, 3, 16, 16) and batch.images_BCHW.dtype == torch.float32
        assert batch.images_BCHW.is_contiguous() and batch.waited >= 0


def test_leaving_early_stops_the_threads() -> None:
    before = threading.active_count()
    batches = _loader(open_images("shapes:40"), workers=3).batches(0, 10_000)
    next(batches)
    assert threading.active_count() > before
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


def test_evaluation_visits_every_image_once_in_order(clean_and_spoilt: tuple[Path, Path, dict[str, str]]) -> None:
    images = open_images(clean_and_spoilt[1], max_bad_fraction=0.1)
    settings = {"size": (16, 16), "batch_size": 32, "mean": [0.5] * 3, "std": [0.25] * 3}
    whole = list(evaluation_batches(images, **settings))
    usable = [i for i in range(200) if i not in images.excluded]
    assert _ids(whole) == usable
    rest = list(evaluation_batches(images, steps=[2, 4], workers=0, **settings))
    assert _ids(rest) == usable[64:96] + usable[128:160]
    everything = torch.cat([batch.images_BCHW for batch in whole])
    assert torch.equal(rest[0].images_BCHW, everything[64:96])
    chosen = list(evaluation_batches(images, ids=[9, 4, 7], **settings))
    assert _ids(chosen) == [9, 4, 7]
    uncached = open_images(clean_and_spoilt[1], cache="off", max_bad_fraction=0.1)
    assert torch.equal(torch.cat([b.images_BCHW for b in evaluation_batches(uncached, **settings)]), everything)


def test_a_batch_of_nothing_but_bad_files_is_empty(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(encoded(picture(i)) if i < 2 else b"")
    images = open_images(tmp_path, cache="off", max_bad_fraction=1.0)
    batches = list(_loader(images, batch_size=1).batches(0, 4))
    assert sorted(len(batch.images_BCHW) for batch in batches) == [0, 0, 1, 1]
    assert {tuple(batch.images_BCHW.shape[1:]) for batch in batches} == {(3, 16, 16)}


def test_statistics_are_those_of_numpy(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    stack = np.stack([picture(i, 20, 20) for i in range(90)])
    for i, image in enumerate(stack):
        (tmp_path / f"{i:02d}.png").write_bytes(encoded(image))
    images = open_images(tmp_path)
    measured = measure_statistics(images)
    np.testing.assert_allclose(measured.mean, (stack / 255).mean((0, 1, 2)), rtol=1e-12)
    np.testing.assert_allclose(measured.std, (stack / 255).std((0, 1, 2)), rtol=1e-9)
    assert measured.images == 90 and measure_statistics(images, 10) == measure_statistics(images, 10)
    batch = torch.cat(
        [
            b.images_BCHW
            for b in evaluation_batches(images, size=(20, 20), batch_size=50, mean=measured.mean, std=measured.std)
        ]
    )
    assert batch.mean((0, 2, 3)).abs().max() < 1e-5 and (batch.std((0, 2, 3)) - 1).abs().max() < 1e-3


def test_a_constant_channel_is_not_divided_by_nothing(tmp_path: Path, picture: Picture, encoded: Encoded) -> None:
    for i in range(3):
        opaque = picture(i, channels=4)
        opaque[:, :, 3] = 255
        (tmp_path / f"{i}.png").write_bytes(encoded(opaque))
    assert measure_statistics(open_images(tmp_path)).std[3] == 1


@pytest.mark.parametrize(
    "setting", [{"batch_size": 0}, {"workers": -1}, {"size": (0, 4)}, {"batch_size": 1, "world": 2}]
)
def test_impossible_settings_are_refused(setting: dict) -> None:
    with pytest.raises(ConfigError, match=next(iter(setting))):
        _loader(open_images("shapes:10", cache="off"), **setting)
