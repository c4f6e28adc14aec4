"""What is a checkpoint, when may it be trusted, and which one does a run continue from?

    checkpoints/step-00000123/  model.safetensors  optim.safetensors  ema.safetensors  state.json  MANIFEST.json
    checkpoints/latest          the name of the newest folder

A folder appears under its name only when every file in it is on the disk. The manifest is written last and seals every
other file and itself, so one flipped bit anywhere is noticed. Equal runs write equal bytes: no time, no path.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from echoless.errors import EcholessError, RunError, UntrustedFile
from echoless.storage.atomic import clear_leftovers, discard_folder, explained, new_folder, write_bytes
from echoless.storage.jsonfile import json_bytes, parse_json, read_json_object, read_small, require_object
from echoless.storage.seal import Seal, check_seal, write_sealed
from echoless.storage.tensorfile import check_header, file_bytes, read_tensors, write_tensors

FEWEST_KEPT = 2
MANIFEST = "MANIFEST.json"
STATE = "state.json"
LATEST = "latest"
STEP_FOLDER = re.compile(r"step-(\d{8})")  # the name of a checkpoint, and of a snapshot

_GROUP = re.compile(r"[a-z][a-z0-9_]{0,31}")
# The only names a manifest may list: no separator, no dot at the front, nothing that leaves the folder.
_FILE = re.compile(r"state\.json|[a-z][a-z0-9_]{0,31}\.safetensors")
_MOST_FILES = 64
_OURS = ("step", "files", "config_sha256", "seal")  # what save_checkpoint adds to the caller's manifest

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint in memory; `tensors` maps a group (model, optim, ema) to its named tensors."""

    step: int
    tensors: dict[str, dict[str, Tensor]]
    state: dict[str, Any]
    manifest: dict[str, Any]


class Skipped(NamedTuple):
    """Something in the checkpoint folder that cannot be used, and why."""

    name: str
    reason: str


@dataclass(frozen=True)
class Found:
    """The newest valid checkpoint, and what was passed over to get to it."""

    path: Path
    step: int
    manifest: dict[str, Any]
    skipped: tuple[Skipped, ...] = ()


def save_checkpoint(
    checkpoints: Path,
    step: int,
    tensors: Mapping[str, Mapping[str, Tensor]],
    state: Mapping[str, Any],
    manifest: Mapping[str, Any],
    keep: int = FEWEST_KEPT,
) -> Path:
    """Write checkpoint `step`, point `latest` at it, and prune to the `keep` newest valid ones. Returns its folder.

    `tensors` maps a group to its named tensors; `state` is any JSON object that the run needs to continue; `manifest`
    says what the weights are: alphas, config, versions, threads, world size. When it cannot be written, a RunError says
    why, nothing is left of it, and the earlier checkpoints are as they were.
    """
    _check_arguments(step, tensors, manifest, keep)
    path = folder_of(checkpoints, step)
    state_bytes = json_bytes(dict(state), path / STATE)
    needed = sum(file_bytes(path / group, named) for group, named in tensors.items()) + len(state_bytes)

    clear_leftovers(checkpoints)
    with new_folder(path, needed=needed) as folder:
        seals = {f"{group}.safetensors": write_tensors(_file(folder, group), tensors[group]) for group in tensors}
        seals[STATE] = write_sealed(folder / STATE, state_bytes)
        write_sealed(folder / MANIFEST, _manifest_bytes(step, seals, manifest, path))
    write_bytes(checkpoints / LATEST, f"{path.name}\n".encode())
    _prune(checkpoints, path, keep)
    return path


def folder_of(parent: Path, step: int) -> Path:
    return parent / f"step-{step:08d}"


def load_checkpoint(path: Path, *, only: Collection[str] | None = None, verified: bool = False) -> Checkpoint:
    """Verify a checkpoint, then read it, or those of its groups that are in `only`.

    verified: another process has just done that, and its hashes need not be computed again.
    """
    manifest = _read_manifest(path) if verified else verify_checkpoint(path)
    groups = [Path(name).stem for name in manifest["files"] if name != STATE]
    groups = [group for group in groups if only is None or group in only]
    tensors = {group: read_tensors(_file(path, group))[0] for group in groups}
    return Checkpoint(manifest["step"], tensors, read_json_object(path / STATE), manifest)


def verify_checkpoint(path: Path) -> dict[str, Any]:
    """The manifest of a checkpoint in which every file is exactly what was written; raises with the reason if not."""
    if path.is_symlink() or not path.is_dir():
        raise RunError(f"{path} is not a checkpoint: it is not a folder")
    manifest = _read_manifest(path)
    for name, seal in _seals(manifest, path).items():
        check_seal(path / name, seal)
        # Right bytes can still be nonsense, if nonsense was sealed: valid means that it will load.
        if name == STATE:
            read_json_object(path / name)
        else:
            check_header(path / name)
    return manifest


def find_latest_valid(checkpoints: Path) -> Found | None:
    """The newest checkpoint that verifies, with what was skipped and why; None where there is no checkpoint at all.

    Where there are some and none of them is valid it raises: to start again from step 0 is then the user's decision.
    """
    skipped: list[Skipped] = []
    for path in checkpoint_folders(checkpoints):
        try:
            manifest = verify_checkpoint(path)
        except EcholessError as error:
            skipped.append(Skipped(path.name, str(error)))
        else:
            skipped += _missing_latest(checkpoints, newest=path)
            return Found(path, manifest["step"], manifest, tuple(skipped))
    if skipped:
        raise RunError(f"no checkpoint in {checkpoints} is valid: {'; '.join(reason for _, reason in skipped)}")
    return None


def checkpoint_folders(checkpoints: Path) -> list[Path]:
    """Every complete step folder, newest first, verified or not."""
    if not checkpoints.is_dir():
        return []
    try:
        named = [path for path in checkpoints.iterdir() if STEP_FOLDER.fullmatch(path.name)]
    except OSError as error:
        raise RunError(f"{checkpoints} cannot be read: {error.strerror}") from error
    return sorted(named, key=lambda path: path.name, reverse=True)


def _missing_latest(checkpoints: Path, newest: Path) -> list[Skipped]:
    """Where `latest` names a newer checkpoint than the newest found: it was removed."""
    try:
        name = read_small(checkpoints / LATEST).decode(errors="replace").strip()
    except EcholessError as error:
        return [Skipped(LATEST, str(error))]
    if not STEP_FOLDER.fullmatch(name):
        return [Skipped(LATEST, f"{checkpoints / LATEST} does not name a checkpoint")]
    if name > newest.name and not (checkpoints / name).exists():
        return [Skipped(name, f"{checkpoints / name} does not exist, although {LATEST} names it")]
    return []


def _check_arguments(step: int, tensors: Mapping[str, object], manifest: Mapping[str, object], keep: int) -> None:
    if not 0 <= step < 10**8:
        raise RunError(f"step is {step}; allowed: 0 to 99999999")
    if keep < FEWEST_KEPT:
        raise RunError(f"keep is {keep}; allowed: {FEWEST_KEPT} or more, so that one damaged checkpoint loses nothing")
    if wrong := [group for group in tensors if not _GROUP.fullmatch(group)]:
        raise RunError(f"tensors has the group {wrong[0]!r}; allowed: lower-case letters, digits and _")
    if len(tensors) >= _MOST_FILES:
        raise RunError(f"tensors has {len(tensors)} groups; allowed: at most {_MOST_FILES - 1}")
    if taken := [key for key in _OURS if key in manifest]:
        raise RunError(f"manifest has the key {taken[0]!r}, which is added here")


def _file(folder: Path, group: str) -> Path:
    return folder / f"{group}.safetensors"


def _manifest_bytes(step: int, seals: Mapping[str, Seal], extra: Mapping[str, Any], path: Path) -> bytes:
    manifest = {**extra, "step": step, "files": {name: seal._asdict() for name, seal in seals.items()}}
    if "config" in manifest:
        manifest["config_sha256"] = _sha256(json_bytes(manifest["config"], path / MANIFEST))
    return _sealed(manifest, path)


def _sealed(manifest: dict[str, Any], path: Path) -> bytes:
    """A manifest that vouches for itself: the seal is the hash of everything else in it."""
    seal = _sha256(json_bytes(manifest, path / MANIFEST))
    return json_bytes({**manifest, "seal": seal}, path / MANIFEST)


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _read_manifest(path: Path) -> dict[str, Any]:
    data = read_small(path / MANIFEST)
    manifest = require_object(parse_json(data, path / MANIFEST), path / MANIFEST)
    unsealed = {key: value for key, value in manifest.items() if key != "seal"}
    # Comparing bytes, not values, notices a change in the white space too.
    if _sealed(unsealed, path) != data:
        raise RunError(f"{path / MANIFEST} is damaged: its SHA-256 is not the one that was written")
    step = manifest.get("step")
    if type(step) is not int or f"step-{step:08d}" != path.name:
        raise RunError(f"{path} holds the checkpoint of another step: {step!r}")
    return manifest


def _seals(manifest: dict[str, Any], path: Path) -> dict[str, Seal]:
    files = require_object(manifest.get("files"), path / MANIFEST)
    if STATE not in files or len(files) > _MOST_FILES:
        raise UntrustedFile(f"{path / MANIFEST} lists {len(files)} files; allowed: {STATE} and at most 63 others")
    for name in files:
        if not _FILE.fullmatch(name):
            raise UntrustedFile(
                f"{path / MANIFEST} lists the file {name[:80]!r}; allowed: state.json, NAME.safetensors"
            )
    return {name: Seal.parse(value, path / MANIFEST) for name, value in files.items()}


def _prune(checkpoints: Path, newest: Path, keep: int) -> None:
    """Delete what is older than the `keep` newest valid checkpoints. A failed delete does not stop the run."""
    valid = 0
    for path in checkpoint_folders(checkpoints):
        if valid >= keep:
            _discard(path)
        elif path == newest or _is_valid(path):
            valid += 1


def _is_valid(path: Path) -> bool:
    try:
        verify_checkpoint(path)
    except EcholessError:
        return False
    return True


def _discard(path: Path) -> None:
    try:
        with explained(path):
            discard_folder(path)
    except RunError as error:
        _log.warning("an old checkpoint stays on the disk: %s", error)
