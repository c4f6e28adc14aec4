"""Proves that a hostile .npz is refused before anything of its announced size is allocated."""

from __future__ import annotations

import io
import os
import pickle
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from echoless.data import open_images
from echoless.data.content import Hasher, Memory, make_content, stamp
from echoless.errors import DataError, EcholessError, UntrustedFile


def _npy_header(shape: tuple[int, ...], descr: str = "|u1") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def _zip(path: Path, member: bytes, compression: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("images.npy", member)
    return path


def _refused(path: Path, reason: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(EcholessError, match=reason):
            open_images(path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20


def test_a_zip_bomb_is_refused(tmp_path: Path) -> None:
    shape = (25_000, 64, 64)
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("images.npy", "w") as member:
        member.write(_npy_header(shape))
        for _ in range(100):
            member.write(bytes(int(np.prod(shape)) // 100))
    print(f"npz bomb: {path.stat().st_size:,} bytes announce {int(np.prod(shape)):,}")
    _refused(path, "allowed: up to 100 times")


def test_a_header_that_announces_more_than_there_is_is_refused(tmp_path: Path) -> None:
    _refused(_zip(tmp_path / "a.npz", _npy_header((10**9, 32, 32, 3)) + bytes(100)), "announces .* and holds 100")
    _refused(_zip(tmp_path / "b.npz", _npy_header((-5, 4, 4, 3)) + bytes(100)), "not a readable array")


def test_a_directory_that_lies_about_sizes_is_refused(tmp_path: Path) -> None:
    path = _zip(tmp_path / "a.npz", _npy_header((10**6, 32, 32, 3)) + bytes(100))
    data = bytearray(path.read_bytes())
    entry = data.rindex(b"PK\x01\x02")
    size = len(_npy_header((10**6, 32, 32, 3))) + 10**6 * 32 * 32 * 3
    data[entry + 20 : entry + 28] = struct.pack("<II", size, size)
    path.write_bytes(data)
    _refused(path, "more than the file has")


def test_python_objects_are_never_loaded(tmp_path: Path) -> None:
    canary = tmp_path / "canary"

    class Payload:
        def __reduce__(self) -> tuple:
            return Path.touch, (canary,)

    member = _npy_header((1, 4, 4), "|O") + pickle.dumps(np.array([Payload()], dtype=object))
    _refused(_zip(tmp_path / "a.npz", member), "Python objects")
    _refused(_zip(tmp_path / "b.npz", pickle.dumps(Payload())), "not a readable array")
    assert not canary.exists()


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (np.zeros((3, 4, 4, 3), np.int32), "images are int32; allowed: uint8, uint16, or floats from 0 to 1"),
        (np.zeros((3, 4), np.uint8), r"allowed: \(N, H, W\)"),
        (np.zeros((3, 3, 32, 32), np.uint8), "channels first"),
        (np.zeros((0, 4, 4), np.uint8), r"allowed: \(N, H, W\)"),
    ],
)
def test_arrays_of_another_layout_are_refused(array: np.ndarray, reason: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", images=array)
    with pytest.raises(DataError, match=reason):
        open_images(tmp_path / "a.npz")


def test_members_must_fit_each_other(tmp_path: Path) -> None:
    images = np.zeros((3, 4, 4), np.uint8)
    np.savez(tmp_path / "a.npz", images=images, labels=np.zeros(2, int))
    with pytest.raises(DataError, match="allowed: 3 entries, one per image"):
        open_images(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz", pictures=images)
    with pytest.raises(DataError, match=r"holds pictures; it needs an array named 'images', or 'x'"):
        open_images(tmp_path / "b.npz")
    (tmp_path / "c.npz").write_bytes(b"no zip at all")
    with pytest.raises(UntrustedFile, match="not a readable"):
        open_images(tmp_path / "c.npz")


def test_damage_inside_a_compressed_member_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez_compressed(path, images=np.random.default_rng(0).integers(0, 256, (200, 16, 16, 3), dtype=np.uint8))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 255
    path.write_bytes(data)
    with pytest.raises(UntrustedFile, match="cannot be unpacked"):
        open_images(path)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, ">f4"])
def test_floats_keep_sixteen_bits_however_dim_they_are(tmp_path: Path, kind: type, save: Callable[..., None]) -> None:
    """From 0 to 0.01, 8 bits would keep four levels."""
    levels = np.random.default_rng(0).random((70, 8, 9, 2)).astype(kind) * np.asarray(0.01, dtype=kind)
    levels[-1, -1, -1] = 1
    save(tmp_path / "a.npz", x=levels)
    images = open_images(tmp_path / "a.npz")
    pixels = np.stack(images.get(range(70)).pixels)
    assert images.bits == 16 and pixels.dtype == np.uint16 and pixels.max() == 65535
    assert np.abs(pixels - 65535 * levels.astype(np.float64).transpose(0, 3, 1, 2)).max() < 0.501


def test_hashes_that_were_taken_of_floats_as_eight_bits_are_not_used(tmp_path: Path, own_cache: Path) -> None:
    """Neither is the cache under their name. Those of whole numbers are."""
    levels = np.random.default_rng(0).random((3, 8, 8)).astype(np.float32)
    for name, array in (("floats", levels), ("whole", np.rint(255 * levels).astype(np.uint8))):
        path = tmp_path / f"{name}.npz"
        np.savez_compressed(path, x=array)
        os.utime(path, (0, 0))
        before, eight = Hasher(), np.rint(255 * levels[:, None]).astype(np.uint8)
        before.add([image.data for image in eight])
        before.began_ns += 10**10  # long after the file was written
        Memory(own_cache, [stamp(path)]).keep(before)
        remembered = make_content([f"{name}.npz/{number:08d}" for number in range(3)], before.digests).fingerprint
        assert (open_images(path).fingerprint == remembered) == (name == "whole")


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_an_array_that_is_not_finite_is_named_with_its_image(tmp_path: Path, bad: float, save) -> None:
    levels = np.zeros((200, 4, 4), np.float32)
    levels[130, 2, 3] = bad
    save(tmp_path / "a.npz", x=levels)
    with pytest.raises(DataError, match=r"a\.npz: image number 130 is not finite; replace its NaN or inf, or leave it"):
        open_images(tmp_path / "a.npz")
    levels[130, 2, 3] = 1.5
    save(tmp_path / "a.npz", x=levels)
    with pytest.raises(DataError, match=r"image number 130 has the value 1\.5; allowed: floats from 0 to 1, or uint8"):
        open_images(tmp_path / "a.npz")
