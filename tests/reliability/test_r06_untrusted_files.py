"""R6: no file that somebody else made can run code, reach outside its folder, or eat the memory of its reader.

Every payload is tried through every public reader of echoless.runs, in a process of its own forked from a warm one.
Payloads of bytes replace every file of a complete run at once, with all hashes made right again, so that only the
readers themselves stand in the way. A lint at the end proves that no other code of ours could unpickle anything.
"""

from __future__ import annotations

import ast
import gzip
import hashlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from forked import in_child

from echoless.errors import RunError, UntrustedFile
from echoless.runs import (
    RunFolder,
    find_latest_valid,
    load_checkpoint,
    load_weights,
    open_run,
    unflatten_state,
    verify_checkpoint,
)
from echoless.runs.checkpoint import _sealed
from echoless.storage import read_json_object
from echoless.storage.tensorfile import read_tensors

SOURCE = Path(__file__).resolve().parents[2] / "src" / "echoless"
STEP = "checkpoints/step-00000001"
TENSOR_FILES = (f"{STEP}/model.safetensors", "encoder/model.safetensors")
JSON_FILES = (f"{STEP}/state.json", "config.json", "results.json", "encoder/config.json")
# JSON of the largest size we read, all of it empty lists, is the worst case for memory.
MOST_EXTRA_MEGABYTES = 160

# A valid safetensors file with strange text in its metadata: nothing to refuse until somebody reads the text.
HARMLESS = {("pickle in the metadata", "read_tensors")}

READERS: dict[str, Callable[[Path], object]] = {
    "load_checkpoint": lambda run: load_checkpoint(run / STEP),
    "verify_checkpoint": lambda run: verify_checkpoint(run / STEP),
    "find_latest_valid": lambda run: find_latest_valid(run / "checkpoints"),
    "load_weights": lambda run: load_weights(run / "encoder"),
    "read_tensors": lambda run: read_tensors(run / TENSOR_FILES[0]),
    "read_json_object": lambda run: read_json_object(run / "config.json"),
    "unflatten_state": lambda run: _unflatten(run),
    "RunFolder.read_config": lambda run: RunFolder(run).read_config(),
    "RunFolder.read_results": lambda run: RunFolder(run).read_results(),
    "RunFolder.read_metrics": lambda run: RunFolder(run).read_metrics(),
}


def _unflatten(run: Path) -> object:
    found = load_checkpoint(run / STEP)
    return unflatten_state(found.tensors["model"], found.state["optim"])


# --- payloads: bytes that replace every file -------------------------------------------------------------------------


class Attack:
    """Unpickling it runs a function."""

    def __init__(self, function: Callable, *arguments: object) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple:
        return self.function, self.arguments


def pickles(canary: Path) -> dict[str, bytes]:
    touch = f"touch {canary}"
    code = f"open({str(canary)!r}, 'w')"
    system = pickle.dumps(Attack(os.system, touch), protocol=2)
    array = io.BytesIO()
    np.save(array, np.array([Attack(os.system, touch)], dtype=object), allow_pickle=True)
    return {
        "pickle os.system": system,
        "pickle protocol 0": pickle.dumps(Attack(os.system, touch), protocol=0),
        "pickle protocol 4": pickle.dumps(Attack(os.system, touch), protocol=4),
        "pickle exec": pickle.dumps(Attack(exec, code)),
        "pickle eval": pickle.dumps(Attack(eval, code)),
        "pickle in a dict": pickle.dumps({"model": Attack(os.system, touch)}),
        "torch zip": zipped("archive/data.pkl", system),
        "nested zip": zipped("archive/data.pkl", zipped("data.pkl", system)),
        "zip with traversal": zipped("../../data.pkl", system),
        "distributed .metadata": pickle.dumps({"state_dict_metadata": Attack(os.system, touch)}),
        "numpy object array": array.getvalue(),
        "gzipped pickle": gzip.compress(system),
        "pickle after a header": safetensors({"w": entry(0, len(system) // 4 * 4)}) + system + b"more",
        "pickle in the metadata": safetensors({"__metadata__": {"shortcuts": system.hex()}}),
        "python source": code.encode(),
    }


def zipped(name: str, content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(name, content)
    return file.getvalue()


def entry(start: int, end: int, dtype: str = "F32", shape: list[int] | None = None) -> dict:
    return {"dtype": dtype, "shape": shape or [(end - start) // 4], "data_offsets": [start, end]}


def safetensors(header: object, data: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


def bad_tensors() -> dict[str, bytes]:
    return {
        "empty": b"",
        "seven bytes": b"\x00" * 7,
        "header of 2**64-1": b"\xff" * 8 + b"{}",
        "header of 2**63": (2**63).to_bytes(8, "little") + b"{}",
        "header above the limit": (17 * 2**20).to_bytes(8, "little") + b" " * 17 * 2**20,
        "header of 100 MB in a small file": (10**8).to_bytes(8, "little") + b"{}",
        "header of zero": b"\x00" * 8,
        "header not JSON": safetensors(b"\x80\x02}q\x00."),
        "header not UTF-8": safetensors(b'{"\xff": 1}'),
        "header nested": safetensors(b'{"a":' * 100_000),
        "header a list": safetensors([]),
        "overlapping tensors": safetensors({"a": entry(0, 8), "b": entry(4, 12)}, b"\x00" * 12),
        "hole between tensors": safetensors({"a": entry(0, 4), "b": entry(8, 12)}, b"\x00" * 12),
        "tensor beyond the file": safetensors({"a": entry(0, 2**40)}, b"\x00" * 8),
        "offsets reversed": safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 0]}}, b"\x00" * 4),
        "offsets negative": safetensors({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, b"\x00" * 4),
        "shape overflows": safetensors({"a": entry(0, 8, shape=[2**62, 2**62])}, b"\x00" * 8),
        "shape and bytes disagree": safetensors({"a": entry(0, 8, shape=[1000])}, b"\x00" * 8),
        "shape of fractions": safetensors({"a": {"dtype": "F32", "shape": [1.5], "data_offsets": [0, 4]}}, b"\x00" * 4),
        "unknown type": safetensors({"a": entry(0, 4, dtype="OBJECT")}, b"\x00" * 4),
        "bytes after the tensors": safetensors({"a": entry(0, 4)}, b"\x00" * 100),
        "metadata not strings": safetensors({"__metadata__": {"shortcuts": {"a": 1}}, "a": entry(0, 4)}, b"\x00" * 4),
    }


def bad_json() -> dict[str, bytes]:
    return {
        "JSON lists nested": b"[" * 200_000,
        "JSON objects nested": b'{"a":' * 200_000,
        "JSON endless number": b'{"a": ' + b"9" * 10**6 + b"}",
        "JSON overflowing number": b'{"a": 1e999}',
        "JSON NaN": b'{"a": NaN}',
        "JSON Infinity": b'{"a": -Infinity}',
        "JSON too large": b'"' + b"x" * 5 * 2**20 + b'"',
        "JSON of empty lists": b"[" + b"[]," * 1_390_000 + b"[]]",
        "JSON in UTF-16": '{"a": 1}'.encode("utf-16"),
        "JSON not UTF-8": b'{"a": "\xff\xfe"}',
        "JSON null": b"null",
        "JSON number": b"7",
        "JSON text": b'"config"',
        "JSON twice": b"{}{}",
        "NUL bytes": b"\x00" * 4096,
        "control characters": b'{"a": "\x01"}',
    }


def replace_everything(run: Path, payload: bytes) -> None:
    """The payload in the place of every file, with all sizes and hashes made to agree."""
    for name in (*TENSOR_FILES, *JSON_FILES[:-1], "metrics.jsonl"):
        (run / name).write_bytes(payload)
    (run / "metrics.jsonl").write_bytes(payload + b"\n")
    (run / "checkpoints/latest").write_bytes(payload[:1000])
    seal = {"bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    edit(run / "encoder/config.json", lambda document: document.update(weights=seal))
    reseal(run, lambda manifest: manifest["files"].update({"model.safetensors": seal, "state.json": seal}))


def edit(path: Path, change: Callable[[dict], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def reseal(run: Path, change: Callable[[dict], object]) -> None:
    """Change the manifest as an attacker would, who can compute its seal."""
    path = run / STEP / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    del manifest["seal"]
    change(manifest)
    path.write_bytes(_sealed(manifest, run / STEP))


def sealed_state(run: Path, state: object) -> None:
    data = json.dumps(state).encode()
    (run / STEP / "state.json").write_bytes(data)
    seal = {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    reseal(run, lambda manifest: manifest["files"].update({"state.json": seal}))


# --- payloads: a change to one place, and the readers that must refuse it ---------------------------------------------

CHECKPOINT = ("load_checkpoint", "verify_checkpoint", "find_latest_valid", "unflatten_state")
ENCODER = ("load_weights",)
CONFIG = ("read_json_object", "RunFolder.read_config")


def planted(canary: Path) -> dict[str, tuple[Callable[[Path], object], tuple[str, ...]]]:
    seal = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}

    def names(name: str) -> tuple[Callable[[Path], object], tuple[str, ...]]:
        return lambda run: reseal(run, lambda manifest: manifest["files"].update({name: seal})), CHECKPOINT

    def manifest(**fields: object) -> tuple[Callable[[Path], object], tuple[str, ...]]:
        return lambda run: reseal(run, lambda manifest: manifest.update(fields)), CHECKPOINT

    def layout(value: object) -> tuple[Callable[[Path], object], tuple[str, ...]]:
        return lambda run: sealed_state(run, {"optim": value}), ("unflatten_state",)

    def shortcuts(value: object) -> tuple[Callable[[Path], object], tuple[str, ...]]:
        return lambda run: edit(run / "encoder/config.json", lambda document: document.update(shortcuts=value)), ENCODER

    def instead(name: str, make: Callable[[Path], object], readers: tuple[str, ...]) -> tuple:
        return lambda run: ((run / name).unlink(), make(run / name)), readers

    weights = (*CHECKPOINT, "read_tensors")
    return {
        "name ../../": names("../../outside.safetensors"),
        "name absolute": names(f"{canary}.safetensors"),
        "name with a folder": names("a/b.safetensors"),
        "name with a backslash": names("..\\b.safetensors"),
        "name with NUL": names("model\x00.safetensors"),
        "name with newline": names("model.safetensors\n"),
        "name hidden": names(".model.safetensors"),
        "name of a pickle": names("model.pt"),
        "name endless": names("m" * 100_000 + ".safetensors"),
        "files a list": manifest(files=["state.json"]),
        "files without state": manifest(files={}),
        "files by the thousand": manifest(
            files={"state.json": seal} | {f"f{i}.safetensors": seal for i in range(5000)}
        ),
        "size negative": manifest(files={"state.json": {"bytes": -1, "sha256": "0"}}),
        "size true": manifest(files={"state.json": {"bytes": True, "sha256": "0"}}),
        "size huge": manifest(files={"state.json": {"bytes": 10**300, "sha256": "0"}}),
        "hash a number": manifest(files={"state.json": {"bytes": 1, "sha256": 0}}),
        "step a text": manifest(step="1"),
        "step another": manifest(step=10**12),
        "layout imports": layout({"$import": "os.system"}),
        "layout names no tensor": layout({"$tensor": "../w"}),
        "layout unhashable key": layout({"$items": [[{"a": 1}, 2]]}),
        "layout permutes wrongly": layout({"$permuted": ["w", [5, 5]]}),
        "layout nested": layout(json.loads("[" * 500 + "]" * 500)),
        "alphas of text": shortcuts({"variant": "faded", "alphas": ["os.system"]}),
        "alphas of huge numbers": shortcuts({"variant": "faded", "alphas": [10**400]}),
        "alphas by the thousand": shortcuts({"variant": "faded", "alphas": [1.0] * 10**5}),
        "shortcuts missing": shortcuts(None),
        "config a folder": instead("config.json", Path.mkdir, CONFIG),
        "config a link outside": instead("config.json", lambda path: path.symlink_to("/etc/passwd"), CONFIG),
        "config a link to a device": instead("config.json", lambda path: path.symlink_to("/dev/zero"), CONFIG),
        "config a broken link": instead("config.json", lambda path: path.symlink_to("nowhere"), CONFIG),
        "config a pipe": instead("config.json", os.mkfifo, CONFIG),
        "config missing": instead("config.json", lambda path: None, CONFIG),
        "results a link outside": instead(
            "results.json", lambda path: path.symlink_to("/etc/passwd"), ("RunFolder.read_results",)
        ),
        "metrics a link to a device": instead(
            "metrics.jsonl", lambda path: path.symlink_to("/dev/zero"), ("RunFolder.read_metrics",)
        ),
        "metrics one endless line": instead(
            "metrics.jsonl", lambda path: path.write_bytes(b"x" * 2**24), ("RunFolder.read_metrics",)
        ),
        "weights a link to a device": instead(TENSOR_FILES[0], lambda path: path.symlink_to("/dev/zero"), weights),
        "weights a pipe": instead(TENSOR_FILES[0], os.mkfifo, weights),
        "weights a folder": instead(TENSOR_FILES[0], Path.mkdir, weights),
        "manifest a pipe": instead(f"{STEP}/MANIFEST.json", os.mkfifo, CHECKPOINT),
        "encoder weights a link": instead(TENSOR_FILES[1], lambda path: path.symlink_to("/etc/passwd"), ENCODER),
    }


# --- the trial, in forked children -----------------------------------------------------------------------------------


def complete_run(path: Path) -> None:
    with open_run(path) as run:
        run.write_config({"seed": 0})
        run.append_metrics({"step": 1, "loss": 1.0})
        run.add_results([{"metric": "knn", "value": 0.5, "protocol": {"k": 20}}])
        tensors = {"w": torch.arange(4.0)}
        run.save_checkpoint(1, {"model": tensors}, {"optim": {"$tensor": "w"}}, {"alphas": [1.0]})
        run.save_encoder(tensors, {"width": 4}, {"variant": "faded", "alphas": [1.0, 0.6]})


REFUSALS = {"refused": (UntrustedFile, RunError)}


class Tally:
    def __init__(self) -> None:
        self.payloads = self.loads = self.refused = self.untyped = self.accepted = 0
        self.megabytes = 0.0

    def try_all(self, run: Path, name: str, must_refuse: tuple[str, ...]) -> None:
        assert must_refuse, f"{name} is refused by nobody"
        self.payloads += 1
        outcome = in_child(READERS, run, REFUSALS)
        self.megabytes = max(self.megabytes, outcome.megabytes)
        for reader, verdict in outcome.readers.items():
            self.loads += 1
            self.refused += verdict == "refused"
            self.untyped += verdict not in ("accepted", "refused")
            self.accepted += verdict == "accepted" and reader in must_refuse
            if verdict != "refused" and reader in must_refuse:
                print(f"{name}: {reader}: {verdict}", file=sys.stderr)


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    canary = folder / "canary"
    tally = Tally()
    complete_run(folder / "run")
    assert set(in_child(READERS, folder / "run", REFUSALS).readers.values()) == {"accepted"}
    for number, (name, payload) in enumerate({**pickles(canary), **bad_tensors(), **bad_json()}.items()):
        run = shutil.copytree(folder / "run", folder / f"bytes-{number}")
        replace_everything(run, payload)
        tally.try_all(run, name, tuple(reader for reader in READERS if (name, reader) not in HARMLESS))
    for number, (name, (plant, readers)) in enumerate(planted(canary).items()):
        run = shutil.copytree(folder / "run", folder / f"planted-{number}")
        plant(run)
        tally.try_all(run, name, readers)
    print(
        f"R6 payloads={tally.payloads} readers={len(READERS)} loads={tally.loads} refused={tally.refused} "
        f"accepted={tally.accepted} untyped={tally.untyped} canaries={int(canary.exists())} "
        f"extra_megabytes={tally.megabytes:.0f}"
    )
    print(f"R6 file_megabytes=64 extra_megabytes={_memory_for_a_good_file(folder):.0f}")


def _memory_for_a_good_file(folder: Path) -> float:
    """What it takes to read a valid checkpoint of 64 MB."""
    with open_run(folder / "good") as run:
        run.save_checkpoint(1, {"model": {"w": torch.ones(2**24)}}, {}, {})
    outcome = in_child({"load_checkpoint": READERS["load_checkpoint"]}, folder / "good", REFUSALS)
    assert outcome.readers == {"load_checkpoint": "accepted"}
    return outcome.megabytes


def test_no_payload_is_used_runs_code_or_eats_memory(tmp_path):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    print(done.stdout.strip())
    attacks, good = (
        {key: float(value) for key, value in (word.split("=") for word in line.split()[1:])}
        for line in done.stdout.splitlines()
    )
    assert attacks["payloads"] >= 30
    assert attacks["accepted"] == attacks["untyped"] == attacks["canaries"] == 0, done.stderr
    assert attacks["extra_megabytes"] < MOST_EXTRA_MEGABYTES
    assert good["extra_megabytes"] < 2 * good["file_megabytes"]


# --- the lint --------------------------------------------------------------------------------------------------------

UNSAFE_MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
MAY_IMPORT_PICKLES = SOURCE / "exchange" / "import_pth.py"


def unsafe_places(tree: ast.AST) -> list[int]:
    """Lines that import an unpickler, call torch.load, or let numpy unpickle."""
    lines = []
    for node in ast.walk(tree):
        modules = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
            if node.module == "torch" and any(alias.name == "load" for alias in node.names):
                lines.append(node.lineno)
        elif isinstance(node, ast.Attribute) and node.attr == "load" and ast.unparse(node.value) == "torch":
            lines.append(node.lineno)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            lines.append(node.value.lineno)
        lines += [node.lineno for module in modules if module.split(".")[0] in UNSAFE_MODULES]
    return lines


def test_the_lint_finds_what_it_is_for():
    for text in ("import pickle", "from pickle import loads", "import joblib.numpy_pickle", "torch.load(x)",
                 "from torch import load", "np.load(x, allow_pickle=True)"):  # fmt: skip
        assert unsafe_places(ast.parse(text)), text
    assert not unsafe_places(ast.parse("np.load(x, allow_pickle=False); safetensors.torch.load_file(x)"))


def test_nothing_in_the_package_unpickles_except_the_import_of_foreign_files():
    files = [path for path in SOURCE.rglob("*.py") if path != MAY_IMPORT_PICKLES]
    found = [f"{path}:{line}" for path in files for line in unsafe_places(ast.parse(path.read_text()))]
    print(f"R6 files={len(files)} unpicklers={len(found)}")
    assert found == []


if __name__ == "__main__":
    main(Path(sys.argv[1]))
