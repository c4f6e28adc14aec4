"""How are samples written to a folder? Batch by batch, so that a killed command continues.

DIR/000000.png ..., DIR/samples.npz (the layout of the ADM evaluation suite: arr_0 uint8 NHWC, arr_1 labels) and
DIR/grid.png. Until all are there, DIR/parts holds the batches that are done.
"""

from __future__ import annotations

import io
import re
import shutil
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from echoless.config import from_dict, to_dict
from echoless.config.options import SampleOptions
from echoless.config.options.fields import given, path_text
from echoless.config.options.sample import SampleSettings
from echoless.errors import RunError
from echoless.evaluation.generate import ON_CPU, ImageGenerator, check_request, open_generator
from echoless.objectives import Sampling, sampler_for
from echoless.runs.folder import LOCK, SAMPLES
from echoless.runtime import Progress, StopRequest, Team, join_team, leave_team
from echoless.storage import read_json_object, write_bytes, write_json
from echoless.storage.atomic import clear_leftovers, explained, new_file, remove
from echoless.storage.lock import FileLock
from echoless.storage.owned import require_ours

BATCH_SIZE = 64  # images that are saved together, unless more of them are computed at a time
GRID = 8  # images in a row, and rows at most


def draw_into(options: SampleOptions) -> int:
    """Everything that can be refused is refused before anything is deleted. Returns how many images are there."""
    out = Path(options.out)
    settings = _settings(options, out)
    team = join_team(options.device or "auto")
    try:
        with StopRequest() as stop, ExitStack() as stack:
            with team.together():
                generator = open_generator(Path(options.run), str(team.device), latent=path_text(options.latent))
                check_request(generator, settings.guidance, settings.classes)
                settings = _settled(settings, generator)
                if team.leads:
                    _check(out, options)
                    lock = _lock(out)
                    stack.callback(lock.remove)
                    protocol = {"model": generator.fingerprint, **to_dict(settings)}
                    _prepare(out, protocol, options, locked=lock.held)
                    _note_step(out, generator)
            if (out / "samples.npz").exists():
                return settings.n
            batch_size = options.batch_size or max(BATCH_SIZE, settings.at_once or 0)
            missing = _missing(settings.n, _parts(out, settings.n), batch_size)
            team.wait()  # nobody draws before all have looked
            done = _draw(generator, out, settings, missing, team, stop)
            if team.leads and done == settings.n:
                _finish(generator, out, settings)
            team.wait()
            return done
    finally:
        leave_team()


def _settings(options: SampleOptions, out: Path) -> SampleSettings:
    """As given; what is not given is, on --resume, what samples.json says."""
    names = [field.name for field in fields(SampleSettings)]
    recorded = {}
    if options.resume and (out / "samples.json").is_file():
        recorded = {name: value for name, value in _recorded(out).items() if name in names}
    known = from_dict(SampleSettings, recorded, str(out / "samples.json"))
    return replace(known, **given(options, *names))


def _recorded(out: Path) -> dict[str, Any]:
    older = {"clip": False, "at_once": ON_CPU, "precision": "fp32"}  # what they were where the file does not say it
    return {**older, **read_json_object(out / "samples.json")}


def _settled(settings: SampleSettings, generator: ImageGenerator) -> SampleSettings:
    """With a value for everything that depends on the model or on the device."""
    precision = settings.precision
    if precision == "auto":
        has_bf16 = generator.device.startswith("cuda") and torch.cuda.is_bf16_supported()
        precision = "bf16" if has_bf16 else "fp32"
    return replace(
        settings,
        sampler=sampler_for(generator.objective, settings.sampler),
        clip=settings.clip and generator.clips,
        at_once=settings.at_once or generator.fitting,
        precision=precision,
    )


def _note_step(out: Path, generator: ImageGenerator) -> None:
    """The training step of a snapshot or a checkpoint, which the protocol of every number of its samples names."""
    if generator.step is not None:
        write_json(out / "samples.json", {**read_json_object(out / "samples.json"), "step": generator.step})


def _check(out: Path, options: SampleOptions) -> bool:
    """Refuse a folder that may not be written into. Returns whether it holds something."""
    if not out.parent.is_dir():
        raise RunError(f"{out} cannot be written: its parent folder {out.parent} does not exist")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file; give --out a folder")
    filled = out.is_dir() and any(path.name != LOCK for path in out.iterdir())
    if filled and not options.resume and not options.overwrite:
        raise RunError(f"{out} is not empty; give --resume to continue, --overwrite to replace, or another --out")
    if filled:
        _require_samples(out)
    if filled and not options.resume:
        require_ours(out, SAMPLES)
    return filled


def _lock(out: Path) -> FileLock:
    """Parts of other settings, drawn into one folder at once, would be joined."""
    with explained(out):
        out.mkdir(exist_ok=True)
    return FileLock(out / LOCK, busy=f"{out} is being filled by another process; wait for it, or give another --out")


def _prepare(out: Path, protocol: dict[str, Any], options: SampleOptions, *, locked: bool) -> None:
    """`protocol`: all that decides the pixels, which must be equal to continue."""
    filled = _check(out, options)  # again, now that nobody else can change the answer
    if filled and options.resume:
        before = _recorded(out)
        for name, value in protocol.items():
            if before.get(name) != value:
                raise RunError(f"{name} was {before.get(name)!r} and is {value!r}; --resume cannot change it")
        for folder in (out, out / "parts"):
            clear_leftovers(folder, locked=locked)
    elif filled:
        # The record goes last: a folder in which the deletion was interrupted is still known as samples.
        for path in sorted(out.iterdir(), key=lambda path: path.name == "samples.json"):
            if path.name != LOCK:
                remove(path)
    if (out / "samples.npz").exists():
        remove(out / "parts")
        return
    with explained(out):
        (out / "parts").mkdir(exist_ok=True)
    write_json(out / "samples.json", protocol)


def _require_samples(out: Path) -> None:
    """Nothing is continued or replaced that `sample` did not make."""
    if not (out / "samples.json").is_file():
        raise RunError(f"{out} holds other files than samples; give --out a new folder, or one that `sample` wrote")


def _draw(
    generator: ImageGenerator,
    out: Path,
    settings: SampleSettings,
    batches: Sequence[range],
    team: Team,
    stop: StopRequest,
) -> int:
    """Every process its own batches. Returns how many images are there in the end, on every process."""
    stopped = False
    with Progress("sampling", settings.n, "images") as progress:
        for number, indices in enumerate(batches):
            if number % team.world != team.rank:
                continue
            if stop.requested:
                stopped = True
                break
            _write(out, indices, _images(generator, settings, indices).numpy())
            if team.leads:
                progress.show(indices[-1] + 1, f"{settings.sampler}, {settings.steps} steps")
        if any(team.maximum(float(stopped))):
            progress.say(f"stopped by {stop.requested or 'another process'}; the same command with --resume continues")
            return 0
    return settings.n


def _images(generator: ImageGenerator, settings: SampleSettings, indices: range) -> Tensor:
    sampling = Sampling(
        name=settings.sampler,
        steps=settings.steps,
        guidance=settings.guidance,
        channels=settings.guidance_channels,
        clip=settings.clip,
    )
    bf16 = settings.precision == "bf16"
    return generator.images(indices, settings.seed, sampling, settings.classes, at_once=settings.at_once, bf16=bf16)


def _parts(out: Path, count: int) -> list[range]:
    """Which images are drawn already, in order; each once, whatever the sizes of the batches were."""
    names = (re.fullmatch(r"(\d{8})-(\d{8})\.npy", path.name) for path in (out / "parts").iterdir())
    found = sorted((int(name[1]), int(name[2]) + 1) for name in names if name)
    kept: list[range] = []
    for first, end in found:
        if first >= (kept[-1].stop if kept else 0) and first < end <= count:
            kept.append(range(first, end))
    return kept


def _missing(count: int, parts: Sequence[range], size: int) -> list[range]:
    """The images that are not in the parts, in batches."""
    ends = [0, *(part.stop for part in parts)]
    starts = [*(part.start for part in parts), count]
    return [batch for first, end in zip(ends, starts) for batch in _batches(first, end, size)]


def _batches(first: int, end: int, size: int) -> Iterator[range]:
    for start in range(first, end, size):
        yield range(start, min(end, start + size))


def _part(out: Path, indices: range) -> Path:
    return out / "parts" / f"{indices[0]:08d}-{indices[-1]:08d}.npy"


def _write(out: Path, indices: range, images_BHWC: np.ndarray) -> None:
    """The pictures first: a part that is there says that its pictures are."""
    for index, image in zip(indices, images_BHWC):
        picture = as_picture(image)
        if picture is not None:
            file = io.BytesIO()
            picture.save(file, "png")
            write_bytes(out / f"{index:06d}.png", file.getvalue())
    array = io.BytesIO()
    np.save(array, images_BHWC)
    write_bytes(_part(out, indices), array.getvalue())


def as_picture(image_HWC: np.ndarray) -> Image.Image | None:
    """Grey or colour; None for other numbers of channels, which a PNG does not have."""
    if image_HWC.shape[-1] not in (1, 3):
        return None
    return Image.fromarray(image_HWC[:, :, 0] if image_HWC.shape[-1] == 1 else image_HWC)


def _finish(generator: ImageGenerator, out: Path, settings: SampleSettings) -> None:
    """samples.npz and grid.png from the parts, which are then gone."""
    parts = [_part(out, indices) for indices in _parts(out, settings.n)]
    shape = (settings.n, *np.load(parts[0], mmap_mode="r").shape[1:])
    labels = generator.labels_of(range(settings.n), settings.classes)
    _write_grid(out / "grid.png", parts)
    with new_file(out / "samples.npz") as file, zipfile.ZipFile(file, "w") as archive:
        # A ZipInfo has a fixed time: equal samples are equal bytes, also where the clock was never set.
        with archive.open(zipfile.ZipInfo("arr_0.npy"), "w", force_zip64=True) as member:
            np.lib.format.write_array_header_1_0(member, {"descr": "|u1", "fortran_order": False, "shape": shape})
            for part in parts:
                member.write(np.load(part).tobytes())
        if labels is not None:
            with archive.open(zipfile.ZipInfo("arr_1.npy"), "w") as member:
                np.lib.format.write_array(member, labels.numpy())
    shutil.rmtree(out / "parts")


def _write_grid(path: Path, parts: Sequence[Path]) -> None:
    images = np.concatenate([np.load(part) for part in parts[: GRID * GRID]])[: GRID * GRID]
    channels = images.shape[-1] if images.shape[-1] in (1, 3) else 3 if images.shape[-1] > 3 else 1
    count, height, width = images.shape[:3]
    columns = min(GRID, count)
    sheet = np.full((-(-count // columns) * (height + 2), columns * (width + 2), channels), 255, np.uint8)
    for index, image in enumerate(images[..., :channels]):
        top, left = index // columns * (height + 2), index % columns * (width + 2)
        sheet[top : top + height, left : left + width] = image
    picture = as_picture(sheet)
    assert picture is not None
    file = io.BytesIO()
    picture.save(file, "png")
    write_bytes(path, file.getvalue())
