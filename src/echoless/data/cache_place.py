"""Is a new cache of decoded pixels built, and if not, why not?

It is built where it fits: into the limit of all caches (`eviction`) and into half of what the disk has free. Otherwise
images are decoded whenever they are needed, and that is said before the work starts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

from echoless.data.cache import CachedPixels, build_cache
from echoless.data.eviction import LIMIT, cache_limit, make_room
from echoless.data.making import Making, Produced, make_together
from echoless.data.survey import Survey
from echoless.errors import DataError, RunError
from echoless.runtime import ALONE, Share
from echoless.storage.atomic import nearest_existing

CacheChoice = Literal["auto", "on", "off"]
Progress = Callable[[int, int], None]  # (images done, images in all)
Say = Callable[[str], None]


class CachePlace(NamedTuple):
    """Where caches are, whether one may be built, who is told about it, and who else builds it."""

    choice: CacheChoice
    root: Path
    progress: Progress | None
    say: Say | None
    share: Share = ALONE

    def build(self, making: Making, survey: Survey, count: int, otherwise: str = "") -> tuple[CachedPixels | None, str]:
        """A new cache of `count` images; or None and the reason. otherwise: what it means if there is no room."""
        if self.choice == "off":
            return None, "no cache: it was turned off"
        needed, disk = int(survey.bytes_per_image * count), nearest_existing(self.root)
        limit = cache_limit(disk)
        if self.choice == "auto" and needed > limit:
            return None, self._refuse(
                needed, f"is more than the {limit:,} that all caches may take ({LIMIT})", otherwise
            )
        evicted = make_room(self.root, limit - needed)
        if evicted and self.say is not None:
            self.say(evicted)
        free = shutil.disk_usage(disk).free
        if self.choice == "auto" and needed > free / 2:
            return None, self._refuse(
                needed, f"would take more than half of the {free:,} free at {self.root}", otherwise
            )
        about: dict[str, Any] = {"channels": survey.shape.channels, "bits": survey.bits}
        about |= {"shape": list(survey.shape), "file_shape": list(survey.file_shape)}
        about |= {"file_channels": survey.file_channels}
        try:
            built = self._built(making, about, count)
            make_room(self.root, limit)  # copies of remote files that were fetched for it
            return built, ""
        except (OSError, RunError) as error:
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError):  # not about the disk
                raise
            room = f"about {needed:,} bytes needed, {free:,} free"
            reason = f"no cache: {self.root} cannot be written ({cause.strerror or cause}), {room}"
            if self.choice == "on":
                raise DataError(
                    f"cache is 'on' but {reason}; give a cache_dir on a disk with room, or cache='off'"
                ) from None
            return None, reason

    def _built(self, making: Making, about: dict[str, Any], count: int) -> CachedPixels:
        if self.share.count > 1:
            return make_together(self.root, making, about, self.share, self.progress)

        def produced() -> Produced:
            yield from self._reporting(making.produce(0, making.units), count)
            about.update(making.about())

        return build_cache(self.root, making.key, about, produced())

    def _refuse(self, needed: int, why: str, otherwise: str) -> str:
        note = f"no cache: {needed:,} bytes {why}"
        if otherwise and self.say is not None:
            self.say(f"{note}; {otherwise}")
        return note

    def _reporting(self, chunks: Produced, count: int) -> Produced:
        done = 0
        for chunk in chunks:
            yield chunk
            done += len(chunk)
            if self.progress is not None:
                self.progress(done, count)
