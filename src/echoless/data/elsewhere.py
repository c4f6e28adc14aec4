"""How does DATA that is elsewhere become a source? List its files, fetch and index each once, then read as from disk.

The index of a file says where its images are, what they are called and how they are labelled; their hashes are taken in
the same pass. Index and hashes are kept under the file's size and mark (ETag). So the images have the same numbers,
paths, labels and fingerprint as on a disk, and what is known is not fetched again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from echoless.config.addresses import without_secrets
from echoless.data.cache import in_parallel
from echoless.data.cache_place import CachePlace
from echoless.data.content import Hasher, Memory
from echoless.data.copies import Copies
from echoless.data.remote import RemoteFile, Site, patiently, site_of
from echoless.data.shards import expand_braces
from echoless.data.sources import ImageSource
from echoless.errors import DataError, NoImages

Kind = Callable[[Sequence[Path | RemoteFile]], ImageSource]
_ASKED_AT_ONCE = 8
_FILES_AT_ONCE = 2  # each by several requests


def open_remote(address: str, kinds: Mapping[str, Kind], place: CachePlace) -> ImageSource:
    """`kinds`: the formats of files with many images, by suffix."""

    def beat() -> None:
        if place.progress is not None:
            place.progress(0, 0)

    def say(text: str) -> None:
        if place.say is not None:
            place.say(text)

    copies = Copies(place.root, beat, say)
    files = list_files(address, kinds, copies)
    copies.plan(files)
    kind = kinds[files[0].suffix]
    _know(files, kind, place.root, say)
    source = kind(files)
    _remember_together(files, place.root)
    return source


def list_files(address: str, kinds: Mapping[str, Kind], copies: Copies) -> list[RemoteFile]:
    """Files of one kind, sorted: by name, by a pattern, or all of a folder."""

    def ask(plain: str) -> dict[str, tuple[Site, Mapping[str, Any]]]:
        site = site_of(plain)
        listed = patiently(site.address, lambda: _listed(site, kinds))
        return {path: (site if path == site.path else site.beside(path), info) for path, info in listed.items()}

    found: dict[str, tuple[Site, Mapping[str, Any]]] = {}
    for some in in_parallel(ask, expand_braces(address), _ASKED_AT_ONCE):
        found |= some
    suffixes = {PurePosixPath(without_secrets(path)).suffix for path in found}
    if len(suffixes) != 1 or not suffixes <= set(kinds):
        shown = without_secrets(address)
        has = f"holds {' and '.join(sorted(suffixes))} files" if found else f"holds no {' or '.join(kinds)} file"
        raise DataError(
            f"data {shown!r} {has}; name files of one kind, such as {shown.rstrip('/')}/*{next(iter(kinds))}"
        )
    return [RemoteFile(site, info, copies) for _, (site, info) in sorted(found.items())]


def _listed(site: Site, kinds: Mapping[str, Kind]) -> dict[str, Mapping[str, Any]]:
    """Path -> what the file system says of it."""
    system, path = site.system, site.path
    if any(letter in path for letter in "*[") or ("?" in path and "=" not in path):
        return _with_size(system, system.glob(path, detail=True).values())
    if PurePosixPath(without_secrets(path)).suffix in kinds:
        return {path: system.info(path)}
    return _with_size(system, (info for info in system.ls(path) if PurePosixPath(info["name"]).suffix in kinds))


def _with_size(system: Any, listed: Iterable[Mapping[str, Any]]) -> dict[str, Mapping[str, Any]]:
    """The files among them; a web server tells no sizes in its lists."""
    files = [info for info in listed if info["type"] == "file"]
    return {info["name"]: system.info(info["name"]) if info.get("size") is None else info for info in files}


def _know(files: Sequence[RemoteFile], kind: Kind, root: Path, say: Callable[[str], None]) -> None:
    """Index and hashes of every file: of those that are new, or have changed, by reading them."""
    new = [file for file in files if Memory(root, [file.stamp]).digests() is None]
    if not new:
        return
    total = sum(file.size for file in new)
    say(f"fetching {len(new)} of {len(files)} files ({total:,} bytes), such as {new[0]}; copies are kept in {root}")

    def learn(file: RemoteFile) -> int:
        hasher = Hasher()
        with suppress(NoImages):  # one of several may be empty
            deque(hasher.passing(kind([file]).chunks()), maxlen=0)
        Memory(root, [file.stamp]).keep(hasher)
        return file.size

    done = 0
    for number, size in enumerate(in_parallel(learn, new, _FILES_AT_ONCE), start=1):
        done += size
        if number % max(1, len(new) // 10) == 0:
            say(f"fetched {number} of {len(new)} files ({done:,} of {total:,} bytes)")


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
