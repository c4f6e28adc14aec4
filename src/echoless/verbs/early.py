"""Which mistakes can be refused before torch is loaded? Missing paths, an --out in use, labels without images.

The full checks are where the files are opened; these answer the common mistakes in a fraction of a second.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

from echoless.config.addresses import is_remote
from echoless.config.checks import nearest
from echoless.config.file_systems import require_file_system
from echoless.config.options import PretrainOptions
from echoless.config.options.fields import AnyPath
from echoless.config.shapes import count_and_split
from echoless.errors import ConfigError, DataError, RunError
from echoless.storage.atomic import can_write, in_the_way
from echoless.storage.owned import is_run

# Fields that name what is written, of all verbs -> those that name what is read as images, the next time too.
_OUTPUTS = {"out": ("data", "train", "test", "probe_data"), "table": ("root",)}
_PAGE, _HEAD = " · echoless</title>".encode(), 4096  # what every page has in its first bytes
_LOOKED_AT = 1000  # names beside a path that does not exist
_PATTERN = frozenset("*?[]{}:")  # of shards, of an address, of `shapes:100`


def alone() -> bool:
    """Among several processes, only those that have met can refuse in one voice: they check later."""
    return os.environ.get("WORLD_SIZE", "1") == "1"


def require_data(*paths: AnyPath | None) -> None:
    """Refuse a data set that is plainly not there, or plainly empty."""
    for path in map(str, (path for path in paths if path is not None)):
        if alone() and is_remote(path):
            require_file_system(path)
        count_and_split(path)  # refuses what only looks like a drawn set
        if is_missing(path):
            raise DataError(
                f"data {path!r} does not exist; allowed: a folder of images, .parquet, .tar, .npz, or "
                f"shapes[:COUNT][@SPLIT]{_similar(Path(path))}"
            )
        if alone() and not _is_named(path) and Path(path).is_dir() and not any(Path(path).iterdir()):
            raise DataError(f"data {path!r} is an empty folder; it must hold images, or .parquet or .tar files")


def _is_named(path: str) -> bool:
    """Whether it stands for other files than the one of its name."""
    return path.startswith("shapes") or bool(_PATTERN & set(path))


def is_missing(path: str) -> bool:
    """Whether a data set or a file of labels is plainly not there."""
    return alone() and not _is_named(path) and not Path(path).exists()


def _similar(path: Path) -> str:
    """A name beside it that may be meant; of a folder with very many files, among the first."""
    try:
        with os.scandir(path.parent) as found:
            beside = [entry.name for entry in islice(found, _LOOKED_AT)]
    except OSError:
        return ""
    return nearest(path.name, beside)


def require_runs(folder: AnyPath) -> None:
    """Refuse a folder of runs that is not there, with the one that may be meant: of a similar name, or with runs."""
    path = Path(folder)
    if path.is_dir():
        return
    if path.exists():
        raise RunError(f"{path} is not a folder; give a folder of runs")
    beside = _folders(path.parent)
    with_runs = (name for name in beside if _holds_runs(path.parent / name))
    meant = nearest(path.name, beside) or next((f"; did you mean {name!r}?" for name in with_runs), "")
    raise RunError(f"{path} does not exist{meant or '; give a folder of runs'}")


def _folders(folder: Path) -> list[str]:
    """The visible folders inside; of very many, among the first."""
    try:
        with os.scandir(folder) as found:
            return sorted(each.name for each in islice(found, _LOOKED_AT) if each.is_dir() and each.name[0] != ".")
    except OSError:
        return []


def _holds_runs(folder: Path) -> bool:
    """Whether it is a run, or a folder of runs."""
    return any(is_run(_names(each)) for each in (folder, *(folder / name for name in _folders(folder))))


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 (names alone)
    except OSError:
        return []


def require_labels(*files: AnyPath | None) -> None:
    """Refuse a labels file that is not there, before the images are read."""
    for file in map(str, (file for file in files if file is not None)):
        if alone() and file != "none" and not Path(file).exists():
            raise DataError(f"labels file {file} does not exist; it must be a CSV file with rows path,label")


def require_encoder(run: AnyPath, others: str = ", a transformers folder, or timm:NAME") -> None:
    """Refuse a run or a model folder that is not there. `others`: what is taken besides, as the sentence ends."""
    named = "timm:" in others and str(run).startswith(("timm:", "local-dir:"))
    if alone() and not named and not Path(run).exists():
        raise RunError(f"{run} does not exist; give a run or an encoder folder{others}")


def require_outputs(options: object) -> None:
    """Of any verb: refuse an output whose name is no text, which safetensors and pyarrow could not open again, one
    that lies below a file, and one among the images that the verb reads."""
    for name, read in _OUTPUTS.items():
        if (given := getattr(options, name, None)) is None:
            continue
        try:
            str(given).encode()
        except UnicodeEncodeError:
            raise ConfigError(f"{name} is {str(given)!r}, which is not UTF-8; give another name") from None
        if alone() and (other := in_the_way(Path(given))) is not None:
            raise ConfigError(f"{name} is {str(given)!r}, but {other} is not a folder; give a path inside one")
        for images in read:
            _require_outside(name, given, images, getattr(options, images, None))


def _require_outside(name: str, out: AnyPath, images: str, folder: AnyPath | None) -> None:
    """What is written into a folder of images is read with them later: pictures as images, a table as the data. A run
    is passed over there, so one that exists may be continued."""
    if folder is None or is_remote(str(folder)) or _is_named(str(folder)) or not Path(folder).is_dir():
        return
    around = Path(folder).resolve()
    if Path(out).resolve().is_relative_to(around) and not is_run(_names(Path(out))):
        raise ConfigError(
            f"{name} is {str(out)!r}, inside the images of {images} {str(folder)!r}; allowed: a path outside, such as "
            f"{str(around.parent / Path(out).name)!r}"
        )


def require_vectors_file(out: AnyPath, *, overwrite: bool) -> None:
    """Refuse a file of vectors whose name says no known format, or that is there already."""
    out = Path(out)
    if alone() and out.suffix not in ("", ".parquet", ".npy", ".csv"):
        raise ConfigError(
            f"out is {str(out)!r}; allowed: a name that ends in .parquet, .npy or .csv, or a folder, without an ending"
        )
    if alone() and out.exists() and not overwrite and not (out.is_dir() and not any(out.iterdir())):
        raise RunError(f"{out} exists; give --overwrite to replace it, or another --out")


def require_page_place(out: AnyPath, otherwise: str = "") -> None:
    """Refuse to replace a file that is not an earlier page: somebody wrote it by hand, or another program did.

    otherwise: what the verb takes besides another --out, as the sentence ends.
    """
    if not (alone() and Path(out).is_file()):
        return
    with Path(out).open("rb") as file:
        if _PAGE not in file.read(_HEAD):
            raise RunError(
                f"out is {str(out)!r}, which exists and is no page of echoless; give another --out{otherwise}"
            )


def require_new_file(name: str, given: AnyPath | None) -> None:
    if alone() and given is not None and Path(given).exists():
        raise RunError(f"{name} is {str(given)!r}, which exists; give --overwrite to replace it, or another --{name}")


def require_table(features: AnyPath) -> None:
    """Refuse what `embed` did not write, or wrote for other programs."""
    path = Path(features)
    if not path.exists():
        raise DataError(f"features {str(path)!r} does not exist; give the .parquet file or folder of `echoless embed`")
    if path.suffix in (".csv", ".npy"):
        raise DataError(f"features is {str(path)!r}; allowed: a table that `echoless embed --out FILE.parquet` wrote")
    if path.is_dir() and not any(path.glob("*.parquet")):
        raise DataError(f"features {str(path)!r} holds no .parquet file; give what `echoless embed` wrote")


def require_folder(out: AnyPath) -> None:
    """Refuse to write a folder in the place of a file, or where nothing can be written."""
    out = Path(out)
    if out.exists() and not out.is_dir():
        raise RunError(f"--out is {out}, which is a file; give a folder")
    if not can_write(out):
        raise RunError(f"{out} cannot be written: permission denied")


def require_test_of(given: AnyPath | None, test: AnyPath | None, name: str = "test_labels") -> None:
    """Labels or masks without images would be ignored."""
    if given is not None and test is None:
        raise ConfigError(f"{name} is {str(given)!r}, but --test is missing")


def require_startable(out: AnyPath, *, resume: bool, overwrite: bool) -> None:
    """Refuse a folder that holds a run, unless it is to be continued or replaced."""
    out = Path(out)
    if not alone():
        return
    if resume and overwrite:
        raise RunError(f"{out} cannot be both resumed and overwritten; give one of --resume and --overwrite")
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is not a folder; give --out a folder")
    if not resume and not overwrite and (out / "config.json").is_file():
        raise RunError(
            f"{out} is not empty (it holds a run); give --resume to continue the run in it, --overwrite to replace it, "
            "or another --out"
        )


def require_probe(options: PretrainOptions) -> None:
    """--probe-every and --probe-data need each other."""
    if options.probe_every is not None and options.probe_data is None:
        raise ConfigError(f"probe_every is {options.probe_every}, but --probe-data is missing; give labelled images")
    if options.probe_data is not None and options.probe_every is None:
        raise ConfigError(f"probe_data is {str(options.probe_data)!r}, but --probe-every is missing; give steps")
    if options.probe_labels is not None and options.probe_data is None:
        raise ConfigError(f"probe_labels is {str(options.probe_labels)!r}, but --probe-data is missing")
