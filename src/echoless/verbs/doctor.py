"""What does `doctor` do? It checks what this machine supports and which libraries are missing."""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import io
import os
import platform
import re
import shutil
import signal
import tempfile
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import echoless
from echoless.config.extras import install_command
from echoless.config.options import DoctorOptions
from echoless.runtime.machine import cpp_compiler, memory_bytes, usable_cores
from echoless.storage.atomic import nearest_existing
from echoless.verbs.signature import signature_of

# Distribution -> the oldest version that will do, as in pyproject.toml.
NEEDED = {
    "torch": "2.13",
    "numpy": "",
    "pillow": "",
    "safetensors": "0.8",
    "pyarrow": "",
    "tyro": "",
    "rich": "",
    "scikit-learn": "",
    "threadpoolctl": "",
    "scipy": "",
    "matplotlib": "",
    "jinja2": "",
    "markupsafe": "",
    "pytorch-optimizer": "",
}
# Extra -> its distributions, and what they add.
EXTRAS = {
    "fast": (("simplejpeg", "isal"), "JPEGs are decoded and cached pixels checked faster, with the same result"),
    "hf": (("transformers", "diffusers"), "import and export of transformers models, diffusers models"),
    "timm": (("timm",), "import and export of timm models; its torchvision must be of the same build as torch"),
    "science": (("tifffile", "pydicom"), "TIFF of any depth and number of channels, DICOM"),
    "heic": (("pillow-heif",), "HEIC photographs of phones"),
    "onnx": (("onnx", "onnxruntime", "onnxscript"), "export to ONNX"),
    "tracking": (("tensorboard",), "--track tensorboard"),
    "wandb": (("wandb",), "--track wandb"),
    "search": (("faiss-cpu",), "search in more than a million images"),
    "cluster": (("submitit", "ray"), "sweep --on slurm and --on ray"),
    "remote": (("fsspec", "aiohttp"), "data at an address: https://, and s3:// with s3fs, gs:// with gcsfs"),
}
# What is imported of each; a library that loads its parts when they are asked for is asked for one.
_MODULES = {
    **{"pillow": "PIL", "scikit-learn": "sklearn", "faiss-cpu": "faiss", "pillow-heif": "pillow_heif"},
    "transformers": "transformers.models.vit.modeling_vit",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report. `broken`: pretraining needs it, and it does not work."""

    section: str
    topic: str
    text: str
    broken: bool = False


@signature_of(DoctorOptions)
def doctor(options: DoctorOptions) -> list[Finding]:
    """Prints every finding as soon as it is known, and returns all of them."""
    findings: list[Finding] = []
    for finding in _plan() if options.plan else examine(self_test=options.self_test):
        if not findings or finding.section != findings[-1].section:
            print(f"\n{finding.section}" if findings else finding.section)
        print(f"  {finding.topic:18} {finding.text}", flush=True)
        findings.append(finding)
    if options.plan:
        return findings
    broken = [finding.topic for finding in findings if finding.broken]
    print(f"\nbroken: {', '.join(broken)}" if broken else "\nEverything that pretraining needs works here.")
    return findings


def examine(*, self_test: bool = True) -> Iterator[Finding]:
    """Every finding, in the order of the report, as soon as it is known."""
    yield Finding("echoless", "echoless", echoless.__version__)
    yield Finding("echoless", "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    works = True
    for distribution, oldest in NEEDED.items():
        version, trouble = look_at(distribution, oldest)
        works &= not trouble
        yield Finding("needed", distribution, trouble or version, bool(trouble))
    yield from _extras()
    if works:
        yield from _machine()
    if works and self_test:
        yield from _self_test()


def _plan() -> Iterator[Finding]:
    """Rates of this machine, measured now, and what many images would cost at these rates."""
    from echoless.data import default_cache_dir
    from echoless.verbs import scale_plan, scale_rates

    rates = scale_rates.measure_rates(nearest_existing(default_cache_dir()))
    for topic, text in scale_plan.describe_rates(rates):
        yield Finding("measured now", topic, text)
    for topic, text in scale_plan.describe_assumptions():
        yield Finding("assumed", topic, text)
    rows = scale_plan.table_of([scale_plan.cost(count, rates) for count in scale_plan.COUNTS])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for first, *cells in rows:
        yield Finding("cost on this machine", first, "  ".join(c.rjust(w) for c, w in zip(cells, widths[1:])))


def look_at(distribution: str, oldest: str = "") -> tuple[str, str]:
    """(version, what is wrong with it: nothing, most of the time). Imports it: an install may be there and broken."""
    try:
        version = importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "", "not installed"
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            module = importlib.import_module(_MODULES.get(distribution, distribution.replace("-", "_")))
            said = str(getattr(module, "__version__", version))  # torch tells there which build it is: 2.13.0+cpu
    except Exception as error:  # whatever a broken install raises
        return version, f"{version} is installed but broken: {_one_line(error)}"
    if oldest and _numbers(version) < _numbers(oldest):
        return version, f"{version} is installed, {oldest} or newer is needed"
    return (said if said.startswith(f"{version}+") else version), ""


def _numbers(version: str) -> tuple[int, ...]:
    """2.13.0+cpu -> (2, 13, 0)"""
    release = re.match(r"\d+(\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= 200 else f"{text[:200]} ..."


def _extras() -> Iterator[Finding]:
    for extra, (distributions, adds) in EXTRAS.items():
        looks = {distribution: look_at(distribution) for distribution in distributions}
        present = [f"{name} {version}" for name, (version, trouble) in looks.items() if not trouble]
        wrong = [f"{name} {trouble}" for name, (version, trouble) in looks.items() if trouble and version]
        missing = [name for name, (version, _) in looks.items() if not version]
        if missing:
            absent = "" if len(missing) == len(looks) else f" ({', '.join(missing)})"
            wrong.append(f"not installed{absent}; {install_command(extra)} adds {adds}")
        yield Finding("extras", extra, "; ".join([", ".join(present)] * bool(present) + wrong))


def _machine() -> Iterator[Finding]:
    import torch

    from echoless.data import default_cache_dir

    yield Finding(
        "this machine", "processor", f"{usable_cores()} usable cores, {torch.get_num_threads()} torch threads"
    )
    yield Finding("this machine", "GPU", _gpus(torch))
    compiler = cpp_compiler()
    found = f"can use {compiler}" if compiler else "no C++ compiler found (g++ is needed)"
    yield Finding("this machine", "torch.compile", f"{found}; off by default on a CPU, on for long runs on a GPU")
    total, free = memory_bytes()
    size = "not known" if total is None else _size(total)
    yield Finding("this machine", "memory", size + ("" if free is None else f", {_size(free)} free"))
    yield Finding("this machine", "disk", f"{_free(Path.cwd())} in the current folder")
    cache = default_cache_dir()
    yield Finding("this machine", "cache", f"{cache} ({_free(cache)}); set by ECHOLESS_CACHE and ECHOLESS_CACHE_LIMIT")


def _gpus(torch: Any) -> str:
    from echoless.runtime.devices import UNTESTED, is_available

    others = [name for name in UNTESTED if is_available(name)]
    if others:
        return f"--device {others[0]} can be tried: it was never tested; training runs on the CPU without it"
    if not torch.cuda.is_available():
        return "none that torch can use; training runs on the CPU"
    devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{device.name} with {_size(device.total_memory)}" for device in devices)


def _free(folder: Path) -> str:
    """Free space where the folder is or will be, and whether it can be written."""
    existing = nearest_existing(folder)
    writable = os.access(existing, os.W_OK) and existing.is_dir()
    return f"{_size(shutil.disk_usage(existing).free)} free" + ("" if writable else ", but it cannot be written")


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GB" if count >= 2**30 else f"{count / 2**20:.0f} MB"


MOST_STEPS, SECONDS = 10, 4.0


def _self_test() -> Iterator[Finding]:
    """A real run through the front door, then the same one cut at a checkpoint and resumed. On one thread: on a busy
    machine, threads that wait for each other would turn seconds into minutes."""
    import torch

    said, threads = io.StringIO(), torch.get_num_threads()
    with tempfile.TemporaryDirectory(prefix="echoless-doctor-") as folder, contextlib.redirect_stderr(said):
        whole, cut = Path(folder) / "whole", Path(folder) / "cut"
        for topic, test in (("training", _trains), ("save and resume", _resumes)):
            torch.set_num_threads(1)
            try:
                finding = Finding("self-test", topic, test(whole, cut))
            except Exception as error:  # the doctor reports, whatever happened
                finding = Finding("self-test", topic, f"failed: {_one_line(error)}", broken=True)
            finally:
                torch.set_num_threads(threads)
            yield finding
            if finding.broken:
                return


def _pretrain(out: Path, *, steps: int, resume: bool = False) -> list[dict[str, Any]]:
    from echoless.runs import RunFolder
    from echoless.verbs.pretrain import pretrain

    with _stopped_after(SECONDS):
        pretrain(
            "shapes:64",
            out=out,
            recipe="demo",
            max_steps=steps,
            # So that a step does not depend on how many there will be.
            warmup=0,
            decay="constant",
            batch_size=16,
            checkpoint_every=1,
            log_every=1,
            cache="off",
            compile=False,
            device="cpu",
            resume=resume,
        )
    return RunFolder(out).read_metrics()


@contextlib.contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    """As a scheduler would: by SIGTERM, upon which a run ends its step and saves."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread gets signals
        return
    # For one that comes before the run listens, or when it is over.
    before, over = signal.signal(signal.SIGTERM, signal.SIG_IGN), threading.Event()

    def ask() -> None:
        pause = seconds
        while not over.wait(pause):
            signal.raise_signal(signal.SIGTERM)
            pause = 0.1

    clock = threading.Thread(target=ask, daemon=True)
    clock.start()
    try:
        yield
    finally:
        over.set()
        clock.join()
        signal.signal(signal.SIGTERM, before)


def _trains(whole: Path, cut: Path) -> str:
    lines = _pretrain(whole, steps=MOST_STEPS)
    return f"{lines[-1]['step']} steps of a tiny model at {lines[-1]['images_per_second']:.0f} images/s on one thread"


def _resumes(whole: Path, cut: Path) -> str:
    from echoless.errors import RunError
    from echoless.runs import RunFolder

    done = RunFolder(whole).read_metrics()[-1]["step"]
    last = Path("checkpoints") / f"step-{done:08d}"
    shutil.copytree(whole, cut)
    shutil.rmtree(cut / last)
    _pretrain(cut, steps=done, resume=True)
    if (whole / last / "model.safetensors").read_bytes() != (cut / last / "model.safetensors").read_bytes():
        raise RunError(f"step {done} of the resumed run differs from that of an uninterrupted run")
    return f"resumed after step {done - 1}: bitwise equal to an uninterrupted run"
