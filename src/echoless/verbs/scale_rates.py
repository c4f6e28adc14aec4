"""How fast does this machine decode, train, embed and write? Each is measured for a few seconds.

The images are like those of ImageNet, JPEG of 500 x 375; the model is that of `mae-base`, at 224 x 224. Where other
programs take a part of the cores, the rate of an idle machine is computed from the processor time that was used.
"""

from __future__ import annotations

import io
import math
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

IMAGE_SIZE = (375, 500)  # height and width, the most common size of ImageNet
INPUT_SIZE = (224, 224)
MODEL = "base"
IDLE = 0.8  # share of the cores above which nothing else runs to speak of
_SECONDS = 3.0  # that each rate is measured for, after a first attempt that is not counted
_WRITTEN_AT_ONCE = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Images per second of this machine, with all its cores or one GPU; bytes per second of its disk."""

    decoded: float
    trained: float
    embedded: float
    written: float
    file_bytes: int  # of one image
    pixel_bytes: int
    feature_bytes: int
    device: str
    cores: int
    share: float  # the smallest part of its cores that this process was given in a measurement; 1 on an idle machine


def measure_rates(folder: Path) -> Rates:
    """`folder`: on the disk that is written to."""
    from echoless.config import mae_preset
    from echoless.data.decode import DecodeSettings, decode
    from echoless.runtime import choose_device
    from echoless.runtime.machine import usable_cores

    file, device, cores = photograph(), choose_device("auto"), usable_cores()
    decoding = _decoding_pace(file, cores)
    training, embedding = _model_paces(device)
    return Rates(
        decoded=decoding.idle,
        trained=training.idle,
        embedded=embedding.idle,
        written=_writing_rate(folder),
        file_bytes=len(file),
        pixel_bytes=decode(file, DecodeSettings(channels=3)).nbytes,
        feature_bytes=4 * mae_preset(MODEL).encoder.width,
        device=device.type,
        cores=cores,
        share=min(decoding.share, training.share, embedding.share),
    )


class Pace(NamedTuple):
    """Units per second, and the part of `threads` cores that was used for them."""

    rate: float
    share: float

    @property
    def idle(self) -> float:
        """What it would be if nothing else ran."""
        return self.rate if self.share >= IDLE else self.rate / self.share


def pace_of(work: Callable[[], int], threads: int | None = None, seconds: float = _SECONDS) -> Pace:
    """`work` returns how many units it did. threads: that it computes with; None if others than this process do it."""
    work()
    done, began, used = 0, time.perf_counter(), time.process_time()
    while (elapsed := time.perf_counter() - began) < seconds:
        done += work()
    share = (time.process_time() - used) / elapsed / threads if threads else 1.0
    return Pace(done / elapsed, min(share, 1.0))


def _decoding_pace(file: bytes, cores: int) -> Pace:
    """Of images, from the bytes of a JPEG to the input of the encoder, on every core."""
    from concurrent.futures import ThreadPoolExecutor

    from echoless.data import resize_and_crop
    from echoless.data.decode import DecodeSettings, decode

    def prepare(_: int) -> None:
        pixels = decode(file, DecodeSettings(channels=3))
        resize_and_crop([pixels], size=INPUT_SIZE, mean=(0.5,) * 3, std=(0.5,) * 3)

    with ThreadPoolExecutor(cores) as pool:
        return pace_of(lambda: len(list(pool.map(prepare, range(8 * cores)))), cores)


def _model_paces(device: torch.device) -> tuple[Pace, Pace]:
    """Of images: forward and backward of the masked autoencoder, and forward of its encoder."""
    import torch

    from echoless.config import MaskedConfig, mae_preset
    from echoless.models.mae import MAE, Masking
    from echoless.objectives.masked import masked_loss, random_masking

    config, generator = MaskedConfig(), torch.Generator().manual_seed(0)
    model = MAE(mae_preset(MODEL, image_size=INPUT_SIZE), generator).to(device)
    images_BCHW = torch.rand(64 if device.type == "cuda" else 4, 3, *INPUT_SIZE, generator=generator).to(device)
    patches = math.prod(side // model.config.encoder.patch_size for side in INPUT_SIZE)

    def train() -> int:
        order_BN, visible = random_masking(len(images_BCHW), patches, config.mask_ratio, generator)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = masked_loss(model, images_BCHW, Masking(order_BN.to(device), visible), config)
        loss.backward()
        return _finished(loss, images_BCHW)

    def embed() -> int:
        with torch.inference_mode():
            return _finished(model.encoder(images_BCHW).sum(), images_BCHW)

    threads = torch.get_num_threads() if device.type == "cpu" else None
    return pace_of(train, threads), pace_of(embed, threads)


def _finished(value: torch.Tensor, images_BCHW: torch.Tensor) -> int:
    """How many images it was; waits for the GPU."""
    value.item()
    return len(images_BCHW)


def _writing_rate(folder: Path) -> float:
    """Bytes per second that reach the disk."""
    block = os.urandom(_WRITTEN_AT_ONCE)
    with tempfile.TemporaryFile(dir=folder) as file:

        def write() -> int:
            file.seek(0)
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
            return len(block)

        return pace_of(write).rate


def photograph() -> bytes:
    """A JPEG of smooth shapes and grain that is about as large as one of ImageNet."""
    import numpy as np
    from PIL import Image

    generator = np.random.default_rng(0)
    coarse = Image.fromarray(generator.integers(0, 256, (12, 16, 3), np.uint8))
    smooth = np.asarray(coarse.resize(IMAGE_SIZE[::-1], Image.Resampling.BICUBIC), dtype=np.int16)
    grain = (14 * generator.standard_normal(smooth.shape)).astype(np.int16)
    file = io.BytesIO()
    Image.fromarray(np.clip(smooth + grain, 0, 255).astype(np.uint8)).save(file, "JPEG", quality=94)
    return file.getvalue()
