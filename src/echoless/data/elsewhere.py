"""How does DATA that is elsewhere become a source? List its files, fetch and index each once, then read as from disk.

The index of a file says where its images are, what they are called and how they are labelled; their hashes are taken in
the same pass. Index and hashes are kept under the file's size and mark (ETag). So the images have the same numbers,
paths, labels and fingerprint as on a disk, and what is known is not fetched again.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from echoless.config.addresses import is_pattern, without_secrets
from echoless.data.cache import in_parallel
from echoless.data.cache_place import CachePlace
from echoless.data.content import Hasher, Memory
from echoless.data.copies import Copies
from echoless.data.patience import Watch, patiently
from echoless.data.remote import RemoteFile, RemotePath, open_path
from echoless.data.shards import expand_braces
from echoless.data.sources import ImageSource
from echoless.errors import DataError, NoImages

Kind = Callable[[Sequence[Path | RemoteFile]], ImageSource]
_ASKED_AT_ONCE = 8
_FOLDERS_SHOWN = 4  # of a folder without files, in the hint
_FILES_AT_ONCE = 2  # each by several requests


def open_remote(address: str, kinds: Mapping[str, Kind], place: CachePlace) -> ImageSource:
    """`kinds`: the formats of files with many images, by suffix."""
    copies = Copies(place.root, Watch(place))
    files = list_files(address, kinds, copies)
    copies.plan(files)
    kind = kinds[files[0].suffix]
    _know(files, kind, place, copies)
    source = kind(files)
    _remember_together(files, place.root)
    return source


def list_files(address: str, kinds: Mapping[str, Kind], copies: Copies) -> list[RemoteFile]:
    """Files of one kind, sorted: by name, by a pattern, or all of a folder."""

    def ask(plain: str) -> dict[str, tuple[RemotePath, Mapping[str, Any]]]:
        at = open_path(plain)
        listed = patiently(at.address, lambda: _listed(at, plain, kinds), copies.watch)
        return {path: (at if path == at.path else at.beside(path), info) for path, info in listed.items()}

    found: dict[str, tuple[RemotePath, Mapping[str, Any]]] = {}
    for some in in_parallel(ask, expand_braces(address), _ASKED_AT_ONCE):
        found |= some
    suffixes = {PurePosixPath(without_secrets(path)).suffix for path in found}
    if len(suffixes) != 1 or not suffixes <= set(kinds):
        _refuse(address, suffixes, kinds, copies)
    return [RemoteFile(at, info, copies) for _, (at, info) in sorted(found.items())]


def _refuse(address: str, suffixes: set[str], kinds: Mapping[str, Kind], copies: Copies) -> NoReturn:
    """Nothing was found, or files of several kinds, or of a kind that cannot be read from afar."""
    shown, known = without_secrets(address), " or ".join(kinds)
    if suffixes - set(kinds):
        raise DataError(f"data {shown!r} names {' and '.join(sorted(suffixes))} files; allowed elsewhere: {known}")
    if suffixes:
        patterns = (f"{shown.rstrip('/')}/*{suffix}" for suffix in sorted(suffixes))
        raise DataError(f"data {shown!r} holds {' and '.join(sorted(suffixes))} files; give {' or '.join(patterns)}")
    below = [] if is_pattern(address) else patiently(shown, lambda: _below(open_path(address), kinds), copies.watch)
    hint = f"; give {' or '.join(below)}" if below else ""
    what = f"matches no {known} file" if is_pattern(address) else f"is no {known} file, and no folder that holds some"
    raise DataError(f"data {shown!r} {what}{hint}")


def _below(at: RemotePath, kinds: Mapping[str, Kind]) -> list[str]:
    """Patterns of the files in its first sub-folders, by what stands before the number: train-*.parquet."""
    folders = [info["name"] for info in at.system.ls(at.path) if info["type"] == "directory"]
    names = [info["name"] for folder in sorted(folders)[:_FOLDERS_SHOWN] for info in at.system.ls(folder)]
    found = [at.beside(name).address for name in names if PurePosixPath(name).suffix in kinds]
    return sorted({re.sub(r"[^/]*$", lambda name: re.sub(r"\d+.*\.", "*.", name[0], count=1), each) for each in found})


def _listed(at: RemotePath, address: str, kinds: Mapping[str, Kind]) -> dict[str, Mapping[str, Any]]:
    """Path -> what the file system says of it."""
    system, path = at.system, at.path
    if is_pattern(address):
        return _with_size(system, system.glob(path, detail=True).values())
    if PurePosixPath(without_secrets(path)).suffix in kinds:
        return {path: system.info(path)}
    return _with_size(system, (info for info in system.ls(path) if PurePosixPath(info["name"]).suffix in kinds))


def _with_size(system: Any, listed: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The files among them; a web server tells no sizes in its lists."""
    files = [info for info in listed if info["type"] == "file"]
    return {info["name"]: system.info(info["name"]) if info.get("size") is None else info for info in files}


def _know(files: Sequence[RemoteFile], kind: Kind, place: CachePlace, copies: Copies) -> None:
    """Index and hashes of every file: of those that are new, or have changed, by reading them.

    Processes that share the work begin at different files, and pass over what another has learnt meanwhile.
    """
    root, begin = place.root, len(files) * place.share.index // place.share.count
    new = [file for file in (*files[begin:], *files[:begin]) if Memory(root, [file.stamp]).digests() is None]
    if not new:
        return
    total, watch = sum(file.size for file in new), copies.watch
    watch.say(
        f"fetching {len(new)} of {len(files)} files ({total:,} bytes), such as {new[0]}; copies are kept in {root}"
    )

    def learn(file: RemoteFile) -> int:
        if Memory(root, [file.stamp]).digests() is not None:
            return file.size
        hasher = Hasher()
        with suppress(NoImages):  # one of several may be empty
            deque(hasher.passing(kind([file]).chunks()), maxlen=0)
        Memory(root, [file.stamp]).keep(hasher)
        return file.size

    done = 0
    with ThreadPoolExecutor(_FILES_AT_ONCE if copies.fits else 1) as pool:
        try:
            for number, size in enumerate(pool.map(learn, new), start=1):
                done += size
                if number % max(1, len(new) // 10) == 0:
                    watch.say(f"fetched {number} of {len(new)} files ({done:,} of {total:,} bytes)")
        except BaseException:
            watch.ended = True  # the other threads do not finish their files first
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _remember_together(files: Sequence[RemoteFile], root: Path) -> None:
    """The hashes of the set, from those of its files: nothing is read for them again."""
    memory, hasher = Memory(root, [file.stamp for file in files]), Hasher()
    if memory.exists:
        return
    for file in files:
        digests = Memory(root, [file.stamp]).digests()
        if digests is None:  # a file without a mark, or with images that cannot be read
            return
        hasher.digests += digests
    memory.keep(hasher)
