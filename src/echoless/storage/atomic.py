"""How does a file or a folder appear on disk whole, or not at all?

It is written under a temporary name beside its target, forced to the disk, and renamed. The temporary name ends in the
writer's machine and process id, so whatever a killed process left behind is recognised and removed by the next one.
Nobody can ask whether a process of another machine lives, nor of this one on Windows; what it left goes when it has not
changed for a day.
"""

from __future__ import annotations

import errno
import hashlib
import os
import platform
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

from echoless.errors import RunError
from echoless.storage.portable import can_ask_for_processes, can_sync_folders, open_flags

# "tmp" is a target in the making or on its way out; "old" is a target that a new one was about to replace. Earlier
# versions did not write the machine.
_LEFTOVER = re.compile(r"(?P<name>.+)\.(?P<kind>tmp|old)-(?:(?P<machine>[0-9a-f]{8})-)?(?P<pid>\d+)")
_ABANDONED_SECONDS = 24 * 3600


def write_bytes(path: Path, data: bytes) -> None:
    """Replace `path` by a file that holds `data`; a kill at any instant leaves the old content or the new."""
    with new_file(path, needed=len(data)) as file:
        file.write(data)


@contextmanager
def new_file(path: Path, *, needed: int | None = None) -> Iterator[BinaryIO]:
    """A temporary file to fill: it becomes `path` when the block ends well, and vanishes when it does not."""
    temporary = temporary_beside(path)
    with explained(path, needed):
        _refuse_unless(stat.S_ISREG, path, "a regular file")
        with _removed_on_failure(temporary):
            with create_file(temporary) as file:
                yield file
            temporary.replace(path)
        sync_folder(path.parent)


@contextmanager
def new_folder(path: Path, *, needed: int | None = None) -> Iterator[Path]:
    """A temporary folder to fill: it becomes `path` when the block ends well, and vanishes when it does not.

    Files in it are made with `create_file`, which forces them to the disk. `needed` is for the message on a full disk.
    """
    temporary = temporary_beside(path)
    with explained(path, needed):
        _refuse_unless(stat.S_ISDIR, path, "a folder")
        clear_leftovers(path.parent, path.name)
        with _removed_on_failure(temporary):
            temporary.mkdir(parents=True)
            yield temporary
            sync_folder(temporary)
            move_into_place(temporary, path)


def move_into_place(ready: Path, path: Path) -> None:
    """Rename; what is in the way steps aside first, because a folder cannot be renamed over a full one."""
    aside = temporary_beside(path, "old")
    if occupied := path.exists():
        path.rename(aside)
    try:
        ready.rename(path)
    except BaseException:
        if occupied:
            aside.rename(path)
        raise
    sync_folder(path.parent)
    if occupied:
        remove(aside)


@contextmanager
def create_file(path: Path) -> Iterator[BinaryIO]:
    """A file that did not exist, with the mode the umask asks for, forced to the disk when the block ends."""
    # O_EXCL also refuses a link that somebody planted under the temporary name.
    descriptor = os.open(path, open_flags("WRONLY", "CREAT", "EXCL"), 0o666)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def in_the_way(path: Path) -> Path | None:
    """What stands where a folder above the path would have to be: a file, or a link that leads nowhere."""
    nearest = next(each for each in (*path.parents, *path.absolute().parents) if os.path.lexists(each))
    return None if nearest.is_dir() else nearest


def nearest_existing(path: Path) -> Path:
    """The path itself, or the nearest folder above it that is there: on the disk that it will be on."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def can_write(folder: Path) -> bool:
    """Whether the folder, or the nearest one above it that exists, may be written into."""
    nearest = nearest_existing(folder)
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk: without it a rename may not survive a power cut."""
    if not can_sync_folders():
        return
    descriptor = os.open(folder, open_flags("RDONLY", "DIRECTORY"))
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some network file systems cannot, and say so this way
            raise
    finally:
        os.close(descriptor)


def temporary_beside(path: Path, kind: str = "tmp") -> Path:
    """The name under which this process writes what will become `path`."""
    return path.with_name(f"{path.name}.{kind}-{_machine()}-{os.getpid()}")


def clear_leftovers(folder: Path, name: str | None = None, *, locked: bool = False) -> None:
    """Remove what dead writers (of `name`, or of anything) left in `folder`, and put back what they had moved aside.

    `locked`: the caller holds a lock without which nobody writes here, so that every writer is dead. Never an error.
    Call it where this process itself is not in the middle of a write: names with its own id are leftovers too, of a
    dead process that had the same id (common in containers).
    """
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            match = _LEFTOVER.fullmatch(path.name)
            if match is None or name not in (None, match["name"]) or not (locked or _is_abandoned(path, match)):
                continue
            with suppress(OSError):
                _clear(path, folder / match["name"], match["kind"])


def is_leftover(path: Path) -> bool:
    """Is this the name of something half written?"""
    return _LEFTOVER.fullmatch(path.name) is not None


def _clear(leftover: Path, target: Path, kind: str) -> None:
    if kind == "old" and not target.exists():
        leftover.rename(target)
    else:
        remove(leftover)


def discard_folder(path: Path) -> None:
    """Delete a folder so that a kill on the way leaves a leftover, never a folder with half its files."""
    doomed = temporary_beside(path)
    path.rename(doomed)
    remove(doomed)


def remove(path: Path) -> None:
    """Delete a file, a link or a folder, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def explained(path: Path, needed: int | None = None) -> Iterator[None]:
    """Turn what the operating system says about a write into one sentence with the path and the way out."""
    try:
        yield
    except OSError as error:
        raise RunError(_explain(error, path, needed)) from error


def _explain(error: OSError, path: Path, needed: int | None) -> str:
    reasons = {
        errno.ENOSPC: "the disk is full",
        errno.EDQUOT: "the disk quota is used up",
        errno.EACCES: "permission denied",
        errno.EPERM: "permission denied",
        errno.EROFS: "the file system is read-only",
        errno.ENOENT: f"its parent folder {path.parent} does not exist",
    }
    reason = reasons.get(error.errno or 0, error.strerror or str(error))
    if error.errno in (errno.ENOTDIR, errno.EEXIST) and (other := in_the_way(path)) is not None:
        reason = f"its parent {other} is not a folder"
    if error.errno == errno.EFBIG:
        reason = f"a file may not grow beyond {_largest_file()} bytes here"
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason += f" ({_bytes(needed)} bytes needed, {_bytes(_free_bytes(path))} bytes free)"
    elif error.errno == errno.ENOENT and path.parent.is_dir():
        reason = f"{error.filename} disappeared while it was written"
    return f"{path} cannot be written: {reason}"


def _largest_file() -> int:
    try:
        import resource
    except ImportError:  # Windows, whose limit is that of the file system
        return 2**63 - 1
    return resource.getrlimit(resource.RLIMIT_FSIZE)[0]


def _bytes(count: int | None) -> str:
    return "an unknown number of" if count is None else str(count)


def _free_bytes(path: Path) -> int | None:
    for folder in path.absolute().parents:
        with suppress(OSError):
            return shutil.disk_usage(folder).free
    return None


def _refuse_unless(allowed: Callable[[int], bool], path: Path, kind: str) -> None:
    """Renaming over a device or a socket would destroy it, even as root; over a link, it replaces the link."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISLNK(mode) and kind == "a regular file") and not allowed(mode):
        raise RunError(f"{path} cannot be written: it exists and is not {kind}")


@cache
def _machine() -> str:
    """Where a process id means something: the host and, in a container, its name space of processes."""
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux
        namespace = ""
    return hashlib.sha256(f"{platform.node()} {namespace}".encode()).hexdigest()[:8]


@contextmanager
def _removed_on_failure(temporary: Path) -> Iterator[None]:
    remove(temporary)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            remove(temporary)
        raise


def _is_abandoned(leftover: Path, match: re.Match[str]) -> bool:
    if match["machine"] in (None, _machine()) and can_ask_for_processes():
        return not _is_another_living_process(match["pid"])
    return time.time() - _last_change(leftover) > _ABANDONED_SECONDS


def _last_change(path: Path) -> float:
    """The time of the newest change to a file or to anything in a folder; OSError if it goes away meanwhile."""
    status = path.lstat()
    inside = path.rglob("*") if stat.S_ISDIR(status.st_mode) else ()
    return max(max(each.st_mtime, each.st_ctime) for each in (status, *(item.lstat() for item in inside)))


def _is_another_living_process(pid: str) -> bool:
    try:
        if int(pid) in (0, os.getpid()):
            return False
        os.kill(int(pid), 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True
    return True
