"""Proves what becomes of every kind of file: pixels equal to Pillow's, tifffile's or pydicom's, or a reason; and R8."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image

from echoless.data import jpeg
from echoless.data.decode import DecodeSettings, Undecodable, check_size, decode, file_shape, to_bits, to_channels
from echoless.data.resizing import Fit
from echoless.data.tiling import PIXEL_LIMIT as LIMIT_OF_TILES

Picture = Callable[..., np.ndarray]
Encoded = Callable[..., bytes]
AS_IS = DecodeSettings()


def _black_png(width: int, height: int) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    squeezer = zlib.compressobj(6)
    rows = b"".join(squeezer.compress(bytes(1 + width)) for _ in range(height)) + squeezer.flush()
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


@pytest.mark.parametrize("channels", [1, 3, 4])
@pytest.mark.parametrize("format", ["PNG", "TIFF", "WEBP"])
def test_lossless_pixels_come_back_exactly(channels: int, format: str, picture: Picture, encoded: Encoded) -> None:
    image = picture(0, channels=channels)
    if format == "WEBP" and channels == 1:
        pytest.skip("WebP has no grey")
    options = {"lossless": True} if format == "WEBP" else {}
    pixels = decode(encoded(image, format, **options), AS_IS)
    if format == "WEBP" and channels == 4:
        image = np.where(image[:, :, 3:] == 0, pixels.transpose(1, 2, 0), image)  # colour under nothing is free
    assert pixels.dtype == np.uint8 and np.array_equal(pixels, image.transpose(2, 0, 1))


@pytest.fixture(params=["simplejpeg", "Pillow"])
def jpeg_decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The fast decoder of ordinary JPEGs where it is installed, and the one that serves where it is not."""
    if request.param == "Pillow":
        monkeypatch.setattr(jpeg, "simplejpeg", None)
    elif jpeg.simplejpeg is None:
        pytest.skip("simplejpeg (extra: fast) is not installed")
    return request.param


@pytest.mark.usefixtures("jpeg_decoder")
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"subsampling": 1}, {"comment": b"a comment"}]
)
def test_a_jpeg_is_what_pillow_makes_of_it(channels: int, options: dict, picture: Picture, encoded: Encoded) -> None:
    for height, width in ((40, 48), (1, 7), (300, 290)):
        data = encoded(picture(1, height, width, channels), "JPEG", quality=90, **options)
        reference = np.asarray(Image.open(io.BytesIO(data))).reshape(height, width, channels).transpose(2, 0, 1)
        assert np.array_equal(decode(data, AS_IS), reference)


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bit_grey_keeps_its_bits(format: str, picture: Picture, encoded: Encoded) -> None:
    image = picture(2, channels=1, dtype=np.uint16)
    pixels = decode(encoded(image, format), AS_IS)
    assert pixels.dtype == np.uint16 and np.array_equal(pixels[0], image[:, :, 0])


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("layout", ["pages", "contig", "separate", "deflated"])
def test_a_five_channel_tiff_has_five_channels(layout: str, dtype: type, picture: Picture) -> None:
    tifffile = pytest.importorskip("tifffile")
    image = picture(3, channels=5, dtype=dtype)
    planes = image.transpose(2, 0, 1)
    file = io.BytesIO()
    if layout == "contig":
        tifffile.imwrite(file, image, photometric="minisblack", planarconfig="contig")
    elif layout == "separate":
        tifffile.imwrite(file, planes, photometric="minisblack", planarconfig="separate")
    else:
        compression = "zlib" if layout == "deflated" else None
        tifffile.imwrite(file, planes, photometric="minisblack", compression=compression)
    pixels = decode(file.getvalue(), AS_IS)
    assert pixels.dtype == dtype and np.array_equal(pixels, planes)


def test_a_sixteen_bit_colour_tiff_keeps_its_bits(picture: Picture) -> None:
    tifffile = pytest.importorskip("tifffile")
    image = picture(3, dtype=np.uint16)
    file = io.BytesIO()
    tifffile.imwrite(file, image, photometric="rgb")
    assert np.array_equal(decode(file.getvalue(), AS_IS), image.transpose(2, 0, 1))


def test_a_tiff_strip_that_inflates_past_the_image_is_refused(picture: Picture) -> None:
    tifffile = pytest.importorskip("tifffile")
    file = io.BytesIO()
    tifffile.imwrite(file, picture(3, channels=5).transpose(2, 0, 1), photometric="minisblack", compression="zlib")
    with tifffile.TiffFile(io.BytesIO(file.getvalue())) as tiff:
        offset, length = tiff.pages[0].dataoffsets[0], tiff.pages[0].databytecounts[0]
    bomb = zlib.compress(bytes(300_000), 9)
    assert len(bomb) <= length
    data = bytearray(file.getvalue())
    data[offset : offset + len(bomb)] = bomb
    with pytest.raises(Undecodable, match="larger than the image announces"):
        decode(bytes(data), AS_IS)


@pytest.mark.parametrize(("stored", "signed"), [(8, False), (12, False), (16, False), (12, True)])
def test_dicom_fills_the_range(stored: int, signed: bool) -> None:
    pydicom = pytest.importorskip("pydicom")
    from pydicom.dataset import FileDataset, FileMetaDataset
    from pydicom.uid import ExplicitVRLittleEndian, SecondaryCaptureImageStorage, generate_uid

    low = -(1 << (stored - 1)) if signed else 0
    levels = np.linspace(low, low + (1 << stored) - 1, 20 * 30).round().reshape(20, 30)
    meta = FileMetaDataset()
    meta.TransferSyntaxUID, meta.MediaStorageSOPClassUID = ExplicitVRLittleEndian, SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    file = io.BytesIO()
    dataset = FileDataset(file, {}, file_meta=meta, preamble=bytes(128))
    dataset.Rows, dataset.Columns, dataset.SamplesPerPixel = 20, 30, 1
    dataset.PhotometricInterpretation = "MONOCHROME2"
    dataset.BitsAllocated = 8 if stored == 8 else 16
    dataset.BitsStored, dataset.HighBit, dataset.PixelRepresentation = stored, stored - 1, int(signed)
    kind = {(8, False): np.uint8, (16, False): np.uint16, (16, True): np.int16}[(dataset.BitsAllocated, signed)]
    dataset.PixelData = levels.astype(kind).tobytes()
    pydicom.dcmwrite(file, dataset)
    pixels = decode(file.getvalue(), AS_IS)
    bits = 8 if stored == 8 else 16
    assert pixels.shape == (1, 20, 30) and pixels.dtype.itemsize * 8 == bits
    assert np.array_equal(pixels[0], (levels - low).astype(np.int64) << (bits - stored))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("format", ["JPEG", "PNG", "TIFF"])
def test_exif_orientation_is_applied(orientation: int, format: str, picture: Picture) -> None:
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    Image.fromarray(picture(4)).save(file, format, exif=exif)
    reference = ImageOps.exif_transpose(Image.open(io.BytesIO(file.getvalue())))
    pixels = decode(file.getvalue(), AS_IS)
    assert np.array_equal(pixels, np.asarray(reference).transpose(2, 0, 1))
    assert pixels.shape == ((3, 48, 40) if orientation >= 5 else (3, 40, 48))


@pytest.mark.parametrize("orientation", [1, 3, 6])
def test_photographs_of_phones_are_read_upright(orientation: int) -> None:
    """HEIC, against the picture that was written, turned by Pillow; coding is lossy."""
    from PIL import ImageOps

    heif = pytest.importorskip("pillow_heif", reason="NOT RUN: pillow-heif is missing, so no HEIC file was read")
    levels = np.zeros((48, 64, 3), np.uint8)
    levels[:24, :, 0], levels[:, :32, 1] = 200, 120
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = Image.open(io.BytesIO(_save(Image.fromarray(levels), "PNG", exif=exif)))
    expected = np.asarray(ImageOps.exif_transpose(turned)).transpose(2, 0, 1)
    heif.register_heif_opener()
    data = _save(Image.fromarray(levels), "HEIF", quality=100, exif=exif.tobytes())
    pixels = decode(data, AS_IS)
    assert pixels.shape == expected.shape and np.abs(pixels.astype(int) - expected).max() <= 4
    assert file_shape(data, AS_IS) == expected.shape[1:]
    with pytest.raises(Undecodable, match="more than the limit of 100"):
        decode(data, DecodeSettings(pixel_limit=100))
    for end in range(12, len(data), 97):
        with pytest.raises(Undecodable):
            decode(data[:end], AS_IS)


def test_a_photograph_of_a_phone_says_which_package_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    data = b"\0\0\0\x1cftypheic\0\0\0\0mif1heicmiaf" + bytes(100)
    with pytest.raises(
        Undecodable, match=r"^HEIC images need pillow-heif: pip install 'echoless\[heic\]' 'torch==[^ ]*'$"
    ):
        decode(data, AS_IS)


def _save(image: Image.Image, format: str, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["palette", "transparent palette", "CMYK", "bilevel", "grey with alpha"])
def test_other_colour_models_become_rgb_or_grey(kind: str, picture: Picture) -> None:
    colour = Image.fromarray(picture(5))
    data, channels = {
        "palette": (_save(colour.quantize(64), "PNG"), 3),
        "transparent palette": (_save(colour.quantize(64), "PNG", transparency=bytes(range(64))), 3),
        "CMYK": (_save(colour.convert("CMYK"), "JPEG"), 3),
        "bilevel": (_save(colour.convert("1"), "PNG"), 1),
        "grey with alpha": (_save(colour.convert("LA"), "PNG"), 1),
    }[kind]
    pixels = decode(data, AS_IS)
    assert pixels.shape == (channels, 40, 48)
    reference = np.asarray(Image.open(io.BytesIO(data)).convert("RGBA").convert("RGB" if channels == 3 else "L"))
    assert np.array_equal(pixels.transpose(1, 2, 0).squeeze(), reference)


def test_an_animation_gives_its_first_frame(picture: Picture) -> None:
    frames = [Image.fromarray(picture(n)) for n in range(3)]
    data = _save(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert np.array_equal(
        decode(data, AS_IS), np.asarray(Image.open(io.BytesIO(data)).convert("RGB")).transpose(2, 0, 1)
    )


def test_a_broken_exif_block_does_not_make_a_file_bad(picture: Picture) -> None:
    data = _save(Image.fromarray(picture(6)), "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff garbage")
    assert decode(data, AS_IS).shape == (3, 40, 48)


@pytest.mark.parametrize("kind", ["empty", "text", "half a JPEG", "half a PNG", "zeros", "floats", "EPS"])
def test_what_cannot_be_read_gives_a_reason(kind: str, picture: Picture, encoded: Encoded) -> None:
    data, reason = {
        "empty": (b"", "empty"),
        "text": (b"this is not an image at all", "not an image"),
        "half a JPEG": (encoded(picture(7, 200, 200), "JPEG")[:2000], "truncated"),
        "half a PNG": (encoded(picture(7))[:900], "."),
        "zeros": (bytes(5000), "not an image"),
        "floats": (_save(Image.fromarray(picture(7)[:, :, 0].astype(np.float32)), "TIFF"), "floating-point"),
        "EPS": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image"),
    }[kind]
    with pytest.raises(Undecodable, match=reason):
        decode(data, AS_IS)


def test_mutilated_files_raise_nothing_else(picture: Picture, encoded: Encoded) -> None:
    """300 files with random damage: each decodes or is refused."""
    rng = np.random.default_rng(0)
    refused = 0
    for number in range(300):
        data = bytearray(encoded(picture(number % 5), ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"][number % 6]))
        for position in rng.integers(0, len(data), 8):
            data[position] = rng.integers(0, 256)
        try:
            decode(bytes(data[: rng.integers(1, len(data) + 1)]), DecodeSettings(channels=3, bits=8))
        except Undecodable:
            refused += 1
    print(f"damaged files=300 refused={refused} other exceptions=0")


def test_a_damaged_jpeg_has_one_fate_with_either_decoder(
    picture: Picture, encoded: Encoded, monkeypatch: pytest.MonkeyPatch
) -> None:
    """200 small JPEGs with flipped bytes or cut short: refused by both or by neither, and with the same pixels."""
    rng = np.random.default_rng(0)
    damaged = []
    for number in range(200):
        data = bytearray(encoded(picture(number % 5, 32, 32), "JPEG"))
        for position in rng.integers(0, len(data), number % 4):
            data[position] = rng.integers(0, 256)
        damaged.append(bytes(data[: rng.integers(len(data) // 2, len(data) + 1)] if number % 2 else data))
    fast = [_fate(data) for data in damaged]
    monkeypatch.setattr(jpeg, "simplejpeg", None)
    slow = [_fate(data) for data in damaged]
    assert fast == slow and 20 < sum(fate is None for fate in fast) < 180


def _fate(data: bytes) -> bytes | None:
    try:
        return decode(data, DecodeSettings(channels=3, bits=8)).tobytes()
    except Undecodable:
        return None


@pytest.mark.usefixtures("jpeg_decoder")
def test_a_jpeg_that_says_two_sizes_gets_the_memory_of_the_checked_one(picture: Picture, encoded: Encoded) -> None:
    """The small frame that a hasty parser would find stands inside what the decoder skips; the large one is real."""
    large = encoded(picture(0, 200, 200), "JPEG")
    frame = b"\xff\xc0\x00\x11\x08\x00\x08\x00\x08\x03\x01\x11\x00\x02\x11\x01\x03\x11\x01"
    for lonely in (b"\xff\x01", b"\xff\xd0", b"\xff\xd8", b"\xff\xff", b"\xff\x00"):
        hostile = large[:2] + lonely + b"\x00\x02" + frame + large[2:]
        assert jpeg.plain_jpeg_header(hostile) is None
    assert jpeg.decode_plain_jpeg(large, "RGB", (100, 100)) is None or jpeg.simplejpeg is None


@pytest.mark.parametrize("format", ["JPEG", "PNG"])
def test_large_images_are_reduced_by_torch_and_never_enlarged(format: str, picture: Picture, encoded: Encoded) -> None:
    """The reference is torch's antialiased bicubic filter on the pixels that Pillow decodes."""
    data = encoded(picture(8, 700, 900), format)
    whole = torch.from_numpy(np.asarray(Image.open(io.BytesIO(data))).copy()).permute(2, 0, 1)[None]
    expected = F.interpolate(whole, size=(256, 329), mode="bicubic", antialias=True)[0]
    assert np.array_equal(decode(data, DecodeSettings(reduction=Fit("cover", (256, 256)))), expected)
    assert decode(data, AS_IS).shape == (3, 700, 900)
    assert decode(data, DecodeSettings(reduction=Fit("cover", (701, 256)))).shape == (3, 700, 900)
    wide = decode(encoded(picture(8, 300, 280, 1, np.uint16)), DecodeSettings(reduction=Fit("cover", (140, 140))))
    assert wide.shape == (1, 150, 140) and wide.dtype == np.uint16


def test_no_crop_can_tell_a_jpeg_decoded_at_half_size(picture: Picture, encoded: Encoded) -> None:
    """Only where three times what is kept is left: the difference is of the order of one grey level."""
    data = encoded(picture(8, 1600, 1800), "JPEG", quality=95)
    settings = DecodeSettings(reduction=Fit("cover", (256, 256)))
    drafted, whole = decode(data, settings), settings.reduction(decode(data, AS_IS))
    levels = np.abs(drafted.astype(int) - whole)
    print(f"JPEG at half size, then reduced: {levels.mean():.3f} levels on average, at most {levels.max()}")
    assert drafted.shape == whole.shape == (3, 256, 288) and levels.mean() < 0.5 and levels.max() <= 3


def test_runs_of_earlier_versions_get_the_pixels_they_had(picture: Picture, encoded: Encoded) -> None:
    """A short side of 256 by Pillow's bilinear filter."""
    image = picture(8, 400, 700)
    pixels = decode(encoded(image), DecodeSettings(reduction=Fit("short", (256, 256), "bilinear")))
    reference = Image.fromarray(image).resize((448, 256), Image.Resampling.BILINEAR)
    assert np.array_equal(pixels, np.asarray(reference).transpose(2, 0, 1))


def test_channels_and_depth_convert_as_pillow_does(picture: Picture) -> None:
    image = picture(9)
    planes = image.transpose(2, 0, 1)
    grey = np.asarray(Image.fromarray(image).convert("L")).astype(int)
    assert np.abs(to_channels(planes, 1)[0].astype(int) - grey).max() <= 1
    assert np.array_equal(to_channels(planes[:1], 3), np.repeat(planes[:1], 3, 0))
    assert np.array_equal(to_channels(to_channels(planes, 4), 3), planes)
    assert np.array_equal(to_bits(to_bits(planes, 16), 8), planes)
    assert to_bits(np.full((1, 2, 2), 255, np.uint8), 16).max() == 65535
    with pytest.raises(Undecodable, match="5 channels, which cannot be converted to 3"):
        to_channels(np.zeros((5, 2, 2), np.uint8), 3)


@pytest.mark.parametrize("pixels", [99, 100])
def test_the_limit_is_checked_against_the_header(pixels: int) -> None:
    data = _black_png(10, 10)
    if pixels >= 100:
        assert decode(data, DecodeSettings(pixel_limit=pixels)).shape == (1, 10, 10)
    else:
        with pytest.raises(Undecodable, match="10 x 10 pixels is more than the limit of 99"):
            decode(data, DecodeSettings(pixel_limit=pixels))


BOMB = """
import resource, sys, time
from pathlib import Path
from echoless.data.decode import DecodeSettings, Undecodable, decode
data = Path(sys.argv[1]).read_bytes()
decode(Path(sys.argv[2]).read_bytes(), DecodeSettings())
before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
try:
    decode(data, DecodeSettings())
except Undecodable as error:
    spent = time.perf_counter() - start
    growth = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(growth, spent, error, sep="|")
"""


def test_a_decompression_bomb_is_refused_from_its_header(tmp_path: Path, encoded: Encoded, picture: Picture) -> None:
    """R8: a small PNG of 177 million pixels costs no memory."""
    bomb, harmless = tmp_path / "bomb.png", tmp_path / "harmless.png"
    bomb.write_bytes(_black_png(13_300, 13_300))
    harmless.write_bytes(encoded(picture(0)))
    command = [sys.executable, "-W", "error", "-c", BOMB, str(bomb), str(harmless)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    growth, spent, reason = result.stdout.strip().split("|")
    print(f"R8 bytes={bomb.stat().st_size} Mpx=177 rss_growth_kB={growth} ms={1000 * float(spent):.1f}")
    more = f"--tiles cuts files of up to {LIMIT_OF_TILES:,} into pieces"
    assert f"13300 x 13300 pixels is more than the limit of 50,000,000; {more}" in reason
    assert int(growth) < 50 * 1024


def test_the_limit_on_pixels_is_fifty_million_and_an_image_of_just_that_size_passes():
    assert DecodeSettings().pixel_limit == 50_000_000
    check_size(100, 200, 20_000)
    with pytest.raises(Undecodable, match="100 x 201 pixels is more than the limit of 20,000"):
        check_size(100, 201, 20_000)


def test_depths_and_grey_are_rounded_to_the_nearest_level():
    levels = np.arange(2**16, dtype=np.uint16)[None, None]
    assert np.array_equal(to_bits(levels, 8), np.round(levels / 257).astype(np.uint8))
    assert np.array_equal(to_bits(to_bits(levels[..., :256].astype(np.uint8), 16), 8), levels[..., :256])
    assert to_bits(np.full((1, 1, 1), 255, np.uint8), 16) == 65535
    colours = np.random.default_rng(0).integers(0, 256, (3, 40, 50)).astype(np.uint8)
    exact = np.tensordot([0.299, 0.587, 0.114], colours.astype(np.float64), axes=1)
    assert np.abs(to_channels(colours, 1)[0] - exact).max() <= 0.5 + 1e-9
