"""Which settings outside config.json does --resume restore? Those that do not change the results.

They are written to RUN/about.json under "runtime" when a run starts, and read back by --resume.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from echoless.config.addresses import without_secrets
from echoless.config.options.fields import AnyPath
from echoless.config.training import Tracker


@dataclass(frozen=True, kw_only=True)
class Remembered:
    """Only settings that were given; None means the default of the verb."""

    workers: int | None = None
    checkpoint_every: int | None = None
    snapshot_every: int | None = None
    snapshots: int | None = None
    log_every: int | None = None
    track: tuple[Tracker, ...] | None = None
    probe_every: int | None = None
    probe_data: AnyPath | None = None
    probe_labels: AnyPath | None = None
    shard: bool | None = None
    checkpoint_activations: bool | None = None
    cache: Literal["auto", "on", "off"] | None = None
    max_bad_fraction: float | None = None
    test: AnyPath | None = None
    test_labels: AnyPath | None = None
    init: AnyPath | None = None

    @classmethod
    def of(cls, options: Any, **more: Any) -> Remembered:
        """The remembered fields of these options; a field that the verb does not have is None."""
        return cls(**{field.name: getattr(options, field.name, None) for field in fields(cls)} | more)

    def to_json(self) -> dict[str, Any]:
        values = {name: value for name, value in vars(self).items() if value is not None}
        return {
            name: without_secrets(str(value)) if isinstance(value, Path | str) else value
            for name, value in values.items()
        }
