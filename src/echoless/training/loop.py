"""How does a training run go from the first step to the last?"""

from __future__ import annotations

import shlex
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from echoless.config import RunConfig, RuntimeConfig, to_dict
from echoless.config.counts import counted, speed_in_words
from echoless.data import Batch, Images, Latents
from echoless.errors import ConfigError, EcholessError, RunError
from echoless.runs import Checkpoint, RunFolder, find_latest_valid, load_checkpoint
from echoless.runs.checkpoint import folder_of
from echoless.runtime import Progress, StopRequest, duration, reuse_freed_memory
from echoless.runtime.machine import peak_memory_mb
from echoless.training import state
from echoless.training.batches import make_loader
from echoless.training.fading_in import fading_in_line
from echoless.training.health import look, probe_batch, probe_latents
from echoless.training.step import StepReport, Trainee, take_step
from echoless.training.tracking import Trackers

_TIMED_STEPS = 10  # after the first and before an estimate: SOAP renews its bases in every tenth
_ON_OTHERS = "; nothing was trained on the images given now: give --max-steps above {}"
_LONG_ENOUGH = 30.0  # seconds after which fewer are enough


@dataclass(kw_only=True)
class Session:
    """One process's part in a run. `run` is the open folder on rank 0 and None elsewhere."""

    trainee: Trainee
    images: Images
    runtime: RuntimeConfig
    out: Path
    run: RunFolder | None
    stop: StopRequest
    progress: Progress
    judge: Callable[[nn.Module], dict[str, float]] | None = None  # asked after every epoch, for supervised runs
    trackers: Trackers | None = None
    probe: Callable[..., dict[str, float]] | None = None  # given the encoder every `probe_every` steps, on rank 0
    latents: Latents | None = None  # what is trained on instead of pixels
    waiting: list[str] | None = None  # lines for log.txt, as long as the start may be refused
    measured_by: str = ""  # the command that measures the run, where its own images are no test
    note_speed: Callable[[float], None] | None = None  # told the images per second after the first steps

    @property
    def config(self) -> RunConfig:
        return self.trainee.config

    @property
    def holds_weights(self) -> bool:
        """Whether this process is needed to look at the weights or to save them: rank 0, or all in a sharded run."""
        return self.run is not None or self.trainee.sharded

    def every(self, name: str) -> int:
        """A period in steps, given or derived from the length of the run."""
        steps = self.config.steps
        snapshots = steps // self.runtime.snapshots if self.runtime.snapshots else steps + 1
        derived = {"checkpoint_every": min(1000, steps // 20), "log_every": steps // 500, "snapshot_every": snapshots}
        return getattr(self.runtime, name) or max(1, derived[name])

    def say(self, text: str) -> None:
        """Prints a line, and appends it to log.txt; before it is sure that the run starts, the line waits."""
        if self.run is None:
            return
        self.progress.say(text)
        if self.waiting is None:
            self.run.log(text)
        else:
            self.waiting.append(text)

    def started(self) -> None:
        """Nothing refuses the start any more: what was said goes to log.txt."""
        said, self.waiting = self.waiting or [], None
        if self.run is not None:
            for text in said:
                self.run.log(text)

    def record(self, line: dict[str, Any]) -> None:
        """Writes a record to metrics.jsonl and to the trackers."""
        if self.run is not None:
            self.run.append_metrics(line)
        if self.trackers is not None:
            for trouble in self.trackers.record(line):
                self.say(trouble)


def begin(session: Session, *, resume: bool) -> int:
    """Start at step 0, or restore the newest valid checkpoint, or refuse. Returns the steps already done."""
    return _continue(session) if resume else _start(session)


def train(session: Session, done: int) -> bool:
    """Run from step `done` to the last, or until asked to stop. Returns whether the run is complete."""
    if done == 0 and session.run is not None:
        # After the record of what the run started from: a config alone would be resumed from random weights.
        session.run.write_config(to_dict(session.config))
    probe = _probe(session)
    if session.runtime.track and session.run is not None:
        config = to_dict(session.config)
        session.trackers = Trackers(session.runtime.track, session.out, after=done, config=config)
    session.progress.begin(done)
    team = session.trainee.team
    loader = make_loader(session.config, session.images, team, session.runtime.workers, session.latents)
    batches = loader.batches(done, session.config.steps, pin=team.device.type == "cuda")
    clock = Clock()
    try:
        with reuse_freed_memory():
            for batch in batches:
                report = take_step(session.trainee, batch, lambda: bool(session.stop.requested))
                done = batch.step + 1
                clock.tick(batch)
                _record(session, done, report, clock, probe)
                _keep(session, done, report)
                if report.stop:
                    break
    finally:
        batches.close()  # type: ignore[attr-defined]
        if session.trackers is not None:
            session.trackers.close()
    return _end(session, done)


def _start(session: Session) -> int:
    if session.run is not None:
        session.run.truncate_metrics(0)
    return 0


def _continue(session: Session) -> int:
    """Restore the newest valid checkpoint. Returns the steps already done."""
    checkpoint = _newest_checkpoint(session)
    if checkpoint is None:
        session.say("there is no checkpoint to resume from: starting at step 0")
        for line in _changes_since_start(session):
            session.say(line)
        return _start(session)
    if checkpoint.step > session.config.steps:
        raise ConfigError(
            f"steps is {session.config.steps}, but {session.out} has already done {checkpoint.step}; allowed: "
            f"--max-steps {checkpoint.step} or more"
        )
    lost = state.drift(checkpoint.manifest, session.config, session.trainee.team, session.trainee.sharded)
    if lost and session.runtime.strict:
        raise RunError(f"not resumed, because of --strict: {lost[0]}")
    state.restore(session.trainee, checkpoint)
    complete = checkpoint.step == session.config.steps
    for line in () if complete else lost:  # after whatever refuses a change: they are about results that will be
        session.say(line)
    if session.run is not None:
        session.run.truncate_metrics(checkpoint.step)
        session.run.drop_snapshots_after(checkpoint.step)
        if not complete:  # the record of a complete run stays as it is
            session.run.drop_encoder()
            if (aside := session.run.set_results_aside(checkpoint.step)) is not None:
                session.say(f"training goes on: the numbers measured so far are kept in {aside.name}")
            session.run.write_config(to_dict(session.config))
    if complete and session.judge is not None:  # the verdict may not have been written before the process ended
        session.trainee.observe(session.judge)
    others = checkpoint.manifest["config"]["data"]["fingerprint"] != session.config.data.fingerprint
    session.say(
        f"nothing left to do: the run is complete{_ON_OTHERS.format(session.config.steps) if others else ''}"
        if complete
        else f"resuming after step {checkpoint.step} of {session.config.steps}"
    )
    return checkpoint.step


def _changes_since_start(session: Session) -> list[str]:
    """Settings that differ from the config of a run that was stopped before its first checkpoint."""
    if session.run is None or not (session.out / "config.json").is_file():
        return []
    try:
        return state.changed_settings(session.run.read_config(), session.config)
    except EcholessError:  # unreadable, and about to be written anew
        return []


def _newest_checkpoint(session: Session) -> Checkpoint | None:
    """Found and verified by rank 0, read by every process; none writes before all have read."""
    team, folder = session.trainee.team, session.out / "checkpoints"
    with team.together():
        found = find_latest_valid(folder) if team.leads else None
        for skipped in found.skipped if found else ():
            session.say(f"skipped the checkpoint {skipped.name}: {skipped.reason}")
    step = int(team.maximum(-1 if found is None else found.step)[0])
    with team.together():
        return None if step < 0 else load_checkpoint(folder_of(folder, step), verified=True)


def _probe(session: Session) -> Tensor | None:
    if not session.holds_weights:
        return None
    config = session.config
    if session.latents is not None:
        return probe_latents(session.images, session.latents, config.seed)
    return probe_batch(session.images, config.model.image_size, config.data.mean, config.data.std, config.seed)


@dataclass
class Clock:
    """Throughput, and the share of the time spent waiting for data."""

    _ticks: deque[tuple[float, int, float]] = field(default_factory=lambda: deque(maxlen=50))
    _settled: bool = False

    def tick(self, batch: Batch) -> None:
        self._ticks.append((time.perf_counter(), len(batch.ids_B), batch.waited))

    def restart(self) -> None:
        """The last step ends now: what was done after it, such as a look at the model, is not counted."""
        self._ticks[-1] = (time.perf_counter(), *self._ticks[-1][1:])

    def settles(self, last: bool) -> bool:
        """True once: when enough steps were timed to say how long the others will take, or there are no more."""
        long = last or self._ticks[-1][0] - self._ticks[0][0] >= _LONG_ENOUGH
        if self._settled or self.steps <= (2 if long else _TIMED_STEPS):
            return False
        self._settled = True
        return True

    @property
    def steps(self) -> int:
        return len(self._ticks)

    def rates(self, world: int) -> dict[str, float]:
        """Over the last steps: images per second of all processes, and the share of the time spent waiting."""
        seconds = self._ticks[-1][0] - self._ticks[0][0]
        if seconds <= 0:
            return {"images_per_second": 0.0, "waiting": 0.0}
        recent = list(self._ticks)[1:]
        return {
            "images_per_second": world * sum(count for _, count, _ in recent) / seconds,
            "waiting": sum(waited for _, _, waited in recent) / seconds,
        }


def _record(session: Session, done: int, report: StepReport, clock: Clock, probe: Tensor | None) -> None:
    """One line of metrics.jsonl when it is due, and the line on the terminal at every step."""
    seen = _observations(session, done, probe) if session.holds_weights else None
    if session.run is None:
        return
    if clock.steps == 1:  # the first step warms up and compiles, and a look at the model follows: not counted
        clock.restart()
        session.progress.begin(done)
    rates = clock.rates(session.trainee.team.world)
    speed = speed_in_words(rates["images_per_second"]) if clock.steps > 1 else ""
    fading = fading_in_line(session.config, done)
    alpha = f"alpha {fading['alpha_min']:.3f}  " if fading else ""
    session.progress.show(done, f"loss {report.loss:.4f}  {alpha}{speed}")
    if clock.settles(last=done == session.config.steps):
        if session.note_speed is not None:
            session.note_speed(rates["images_per_second"])
        if left := session.progress.seconds_left(done):
            session.progress.say(f"about {duration(left)} to go at {speed}")
    if seen is not None:
        line = {"step": done, "loss": report.loss, "lr": report.lr, "gradient_norm": report.gradient_norm}
        session.record(line | fading | seen | rates | {"memory_mb": peak_memory_mb()})


def _observations(session: Session, done: int, probe: Tensor | None) -> dict[str, Any] | None:
    """What the model looks like after this step; None where no line is due."""
    trainee, judge = session.trainee, session.judge
    due, last = session.every("log_every"), done == session.config.steps
    judged = judge is not None and (last or _ends_epoch(session, done))
    every = session.runtime.probe_every
    probed = every is not None and (last or done % every == 0)
    if done % due and not (last or done == 1 or judged or probed):
        return None
    seen: dict[str, Any] = {}
    if done == 1 or last or done % (10 * due) == 0:
        assert probe is not None
        seen |= trainee.observe(lambda model: look(model, trainee.objective, probe, trainee.team.device))
    if judged and judge is not None:
        seen |= trainee.observe(judge)
    return seen | (_probe_features(session, done) if probed else {})


def _probe_features(session: Session, done: int) -> dict[str, float]:
    """What the probe says of the features after this step. The first time, what it costs."""
    encoder, every = state.encoder_of(session.trainee, done), session.runtime.probe_every
    if session.probe is None or every is None:  # another process of a sharded run
        return {}
    found = session.probe(*encoder)
    text = f"step {done}: kNN {100 * found['probe_knn']:.2f} %, linear {100 * found['probe_linear']:.2f} %"
    left = (session.config.steps - done) // every
    more = f"; {left} more would take about {duration(left * found['probe_seconds'])}" if left else ""
    session.progress.say(f"{text} (probe, {found['probe_seconds']:.1f} s{more})")
    return found


def _ends_epoch(session: Session, done: int) -> bool:
    size, count = session.config.batch_size, session.images.usable
    return done * size // count > (done - 1) * size // count


def _keep(session: Session, done: int, report: StepReport) -> None:
    """Saves a checkpoint and a snapshot when they are due."""
    if not session.holds_weights:
        return
    if report.stop or done == session.config.steps or done % session.every("checkpoint_every") == 0:
        state.save(session.run, session.trainee, done, session.runtime.keep)
    if done % session.every("snapshot_every") == 0:
        encoder = state.encoder_of(session.trainee, done)
        if session.run is not None:
            session.run.save_snapshot(done, *encoder)


def _end(session: Session, done: int) -> bool:
    complete = done == session.config.steps
    encoder = state.encoder_of(session.trainee, done) if complete and session.holds_weights else None
    if session.run is not None:
        if encoder is not None:
            session.run.save_encoder(*encoder)
            session.say(f"done: {counted(done, 'step')}; the encoder is in {session.run.encoder}")
            _say_next(session)
        else:
            who = session.stop.requested or "another process"
            session.say(
                f"stopped by {who} after step {done}; everything is saved: the same command with --resume continues"
            )
            session.progress.say(f"its newest checkpoint can be used as it is: echoless evaluate {session.out}")
    session.trainee.team.wait()
    return complete


def _say_next(session: Session) -> None:
    """On the terminal only: the log of equal runs has equal bytes, wherever they are."""
    run, data = shlex.quote(str(session.out)), shlex.quote(session.config.data.path or "DATA")
    body: Any = session.config.model.body
    commands = [
        *([f"echoless sample {run} --out SAMPLES"] if body.denoises else []),
        session.measured_by or f"echoless evaluate {run}                          # ranks and, with labels, accuracies",
        f"echoless embed {run} {data} --out features.parquet",
        f"echoless report {run} --out report.html",
    ]
    for start, command in zip(("next: ", *[" " * 6] * 3), commands):
        session.progress.say(start + command)
