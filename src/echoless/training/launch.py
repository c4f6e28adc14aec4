"""How does a complete config become a training run? Open the folder, build the model, log the facts, train.

Shared by every verb that trains.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from echoless.config import RunConfig, RuntimeConfig
from echoless.config.supervised import SupervisedConfig
from echoless.data import Images, Latents, default_cache_dir
from echoless.data.overlap import file_keys
from echoless.errors import Busy, RunError
from echoless.randomness import generator_for
from echoless.runs import RunFolder, check_run, open_run
from echoless.runs.checkpoint import checkpoint_folders
from echoless.runs.open import Start, load_body
from echoless.runs.taught import Taught, add_taught
from echoless.runtime import Progress, Share, StopRequest, Team, join_team, leave_team
from echoless.training.about import opening_lines, recorded, run_facts
from echoless.training.loop import Session, begin, train
from echoless.training.room import require_room
from echoless.training.step import make_trainee
from echoless.training.task import build_task
from echoless.training.warmstart import warm_start

_WAIT_SECONDS = 1.0
_SHOWN_AFTER_SECONDS = 60.0


@dataclass(kw_only=True)
class Workplace:
    """The processes, the stop signal and the run folder of a run. `run` is None except on rank 0."""

    out: Path
    run: RunFolder | None
    stop: StopRequest
    team: Team

    def replace_old_run(self) -> None:
        """Deletes the run that --overwrite replaces, after the data was found to be usable."""
        with self.team.together():
            if self.team.leads and self.run is None:
                self.run = open_run(self.out, overwrite=True)


@contextmanager
def workplace(out: Path, device: str, *, resume: bool, overwrite: bool, wait: bool = False) -> Iterator[Workplace]:
    """Join the other processes, listen for signals, and hold the run folder until the end."""
    team = join_team(device)
    place = None
    try:
        with StopRequest() as stop:
            with team.together():
                place = Workplace(out=out, run=None, stop=stop, team=team)
                if team.leads:
                    place.run = _open_when_free(out, resume, overwrite, stop if wait else None)
            with team.together():
                if not team.leads and (resume or not overwrite):  # what is to be replaced may not exist yet
                    _require_shared(out, team)
            yield place
    except BaseException:
        if place is not None and place.run is not None:
            place.run.close_unused()
        raise
    finally:
        if place is not None and place.run is not None:
            place.run.close()
        leave_team()


def _require_shared(out: Path, team: Team) -> None:
    """Every process reads the run folder. A network disk may take a while to show what another node has made."""
    deadline = time.monotonic() + _SHOWN_AFTER_SECONDS
    while not out.exists():
        if time.monotonic() > deadline:
            raise RunError(
                f"process {team.rank} does not see {out.absolute()}, which process 0 has opened; --out must be on a "
                "disk that all nodes share"
            )
        time.sleep(0.1)


def common_share(team: Team) -> Share:
    """This process's share of decoding and encoding; says so where nodes cannot share their caches."""
    root = default_cache_dir()
    share = team.share_of(root)
    if 1 < team.world != share.count and share.index == 0:
        print(
            f"{root} is not shared by all {team.world} processes: those of this node ({share.count}) build a cache of "
            "their own",
            file=sys.stderr,
            flush=True,
        )
    return share


def _open_when_free(out: Path, resume: bool, overwrite: bool, waiting: StopRequest | None) -> RunFolder | None:
    """`_open_folder`; with `waiting`, again and again until the folder is free or a signal ends the wait."""
    while True:
        try:
            return _open_folder(out, resume, overwrite)
        except Busy:
            if waiting is None or waiting.requested:
                raise
            time.sleep(_WAIT_SECONDS)


def _open_folder(out: Path, resume: bool, overwrite: bool) -> RunFolder | None:
    """The run folder; None where it is to be replaced, which waits.

    A command with --resume may be its own first start, as schedulers repeat it; but it may also be a mistyped --out.
    """
    if resume and not out.exists():
        note = f"{out} does not exist: there is nothing to resume, and a NEW run starts there"
        print(note, file=sys.stderr, flush=True)
    if overwrite and not resume:
        check_run(out, overwrite=True)
        return None
    return open_run(out, resume=resume, overwrite=overwrite)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Everything a run needs."""

    config: RunConfig
    runtime: RuntimeConfig
    images: Images
    place: Workplace
    resume: bool = False
    init: str | Path | None = None  # weights to start from, where there is no checkpoint yet
    start: Start | None = None  # the same, opened, where they are not of ours
    taught: Taught = field(default_factory=Taught)  # whose labels have trained them
    judge: Callable[[nn.Module], dict[str, float]] | None = None
    probe: Callable[..., dict[str, float]] | None = None  # measures the features while the run trains
    command: str = ""  # what to type to repeat the run
    remembered: Mapping[str, Any] = field(default_factory=dict)  # settings for the next --resume
    show_data: Callable[[RunFolder], None] = lambda run: None  # draws a few of the images into the run folder
    latents: Latents | None = None
    measured_by: str = ""
    notes: Sequence[str] = ()  # more opening lines of the log


def launch(job: Launch) -> bool:
    """Train. Returns whether the run is complete.

    Nothing of an earlier run is replaced, and nothing is recorded, before everything that can refuse has agreed.
    """
    config, place = job.config, job.place
    model, objective = build_task(config, generator_for(config.seed, "init", 0))
    started, start = _warm_start(job, model)
    memory = {"shard": job.runtime.shard, "recompute": job.runtime.checkpoint_activations}
    trainee = make_trainee(config, model, objective, place.team, **memory)
    require_room(place.out, trainee, job.runtime.keep)
    place.replace_old_run()
    facts = run_facts(config, job.images, model)
    with Progress("training", config.steps) as progress:
        session = Session(
            trainee=trainee,
            images=job.images,
            runtime=job.runtime,
            out=place.out,
            run=place.run,
            stop=place.stop,
            progress=progress,
            judge=job.judge,
            probe=job.probe,
            latents=job.latents,
            measured_by=job.measured_by,
            waiting=[],
        )
        for line in [*opening_lines(config, facts, job.images), *job.notes, *started]:
            session.say(line)
        done = begin(session, resume=job.resume)
        session.started()
        if done == config.steps:
            return train(session, done)
        more = {"runtime": dict(job.remembered)} | ({"start": start} if start else {})
        return _train_recorded(job, session, done, facts | more)


def _train_recorded(job: Launch, session: Session, done: int, facts: Mapping[str, Any]) -> bool:
    if session.run is not None:
        job.show_data(session.run)
        own = file_keys(job.images) if isinstance(job.config.objective, SupervisedConfig) else ()
        add_taught(session.run.path, job.taught | Taught(frozenset(own)))
    with recorded(session.run, job.command, facts, job.place.team) as record:
        session.note_speed = None if record is None else record.note_speed
        return train(session, done)


def _warm_start(job: Launch, model: nn.Module) -> tuple[list[str], dict[str, str]]:
    """Load what the run starts from, unless a checkpoint of its own holds more. Returns sentences, and the record.

    A run that was stopped before its first checkpoint starts again, from the same weights or not at all.
    """
    recorded_start: dict[str, str] = RunFolder(job.place.out).read_about().get("start", {}) if job.resume else {}
    if not job.init or (job.resume and checkpoint_folders(job.place.out / "checkpoints")):
        return [], recorded_start
    body = load_body(job.init) if job.start is None else job.start.body
    start = {"path": str(job.init), "fingerprint": body.fingerprint}
    if recorded_start and recorded_start["fingerprint"] != start["fingerprint"]:
        raise RunError(
            f"{job.init} holds other weights than those the run started from; give --overwrite to start anew, or "
            "another --out"
        )
    said, data = [warm_start(model, job.start or Path(job.init))], job.config.data
    if job.start and job.start.assumed and (data.mean, data.std) == (body.mean, body.std):
        said.append(job.start.assumed.sentence)
        start["assumed_normalisation"] = job.start.assumed.normalisation
    return said, start
