"""What was run? Rows of (name, value) for one run, from what its folder recorded."""

from __future__ import annotations

import math
from typing import Any

from echoless.config import RunConfig, from_dict
from echoless.config.counts import counted
from echoless.errors import EcholessError
from echoless.reports.collect import RunData, is_number, is_whole
from echoless.reports.figures import effective_alpha_note
from echoless.runs.about import sentences


def is_killed(run: RunData) -> bool:
    """Whether its last session ended without a word: it began, did not end, and no process holds the folder."""
    begun, ended, history = (run.about.get(name) for name in ("sessions", "ended", "history"))
    if run.alive is not False or run.complete or not is_whole(begun) or not is_whole(ended) or begun <= ended:
        return False
    last = history[-1] if isinstance(history, list) and history else None  # an earlier one may have been killed
    return not isinstance(last, dict) or last.get("seconds") is None


def status(run: RunData) -> str:
    if run.complete:
        return f"complete: {counted(run.steps_done, 'step')}"
    if run.steps is not None and run.lines:
        now = "killed: " if is_killed(run) else "stopped: " if run.alive is False else ""
        return f"{now}step {run.steps_done} of {run.steps} ({100 * run.steps_done / run.steps:.0f} %)"
    return f"{counted(run.steps_done, 'step')} recorded" if run.lines else "no step recorded yet"


def facts(run: RunData) -> list[tuple[str, str]]:
    """The rows whose value is known."""
    known = _sentences_from_config(run) | sentences(run.about)
    rows = [
        ("status", status(run)),
        ("data", known.get("data", "")),
        ("model", known.get("model", "")),
        ("parameters", _parameters(run.about)),
        ("shortcuts", known.get("shortcuts", "")),
        ("fading", effective_alpha_note(run)),
        ("training", known.get("run", "")),
        ("started from", _start(run)),
        ("recipe", str(run.config.get("recipe", ""))),
        ("seed", "" if run.seed is None else str(run.seed)),
        ("time", _time(run)),
        ("machine", _machine(run)),
        ("versions", _versions(run)),
    ]
    return [(name, value) for name, value in rows if value]


def command(run: RunData) -> str:
    """The commands that repeat the run, one to a line; empty if none was recorded. A record leaves out --resume."""
    history = run.about.get("history")
    sessions = [each.get("command") for each in history if isinstance(each, dict)] if isinstance(history, list) else []
    typed = [str(each) for each in sessions if each] or [str(run.about.get("command") or "")]
    first, *others = dict.fromkeys(typed)  # a run that was resumed as it was started is repeated by one command
    return "\n".join([first, *(f"{other} --resume" for other in others)])


def headline(run: RunData) -> str:
    """alpha_min or the shortcut variant, for the legend."""
    shortcuts = _shortcuts(run.config)
    if shortcuts.get("variant", "faded") != "faded":
        return str(shortcuts["variant"])
    return f"alpha_min {shortcuts['alpha_min']:g}" if is_number(shortcuts.get("alpha_min")) else ""


def _shortcuts(config: dict[str, Any]) -> dict[str, Any]:
    model = _part(config, "model")
    return _part(_part(model, "encoder") or model, "shortcuts")


def _part(config: dict[str, Any], name: str) -> dict[str, Any]:
    """A part of the settings; empty where it is missing or of another kind."""
    part = config.get(name)
    return part if isinstance(part, dict) else {}


def _sentences_from_config(run: RunData) -> dict[str, str]:
    """Facts from the config, for a run whose about.json was written by an earlier version and lacks them."""
    config = run.config
    facts: dict[str, Any] = {}
    if run.alphas:
        ends = {"first_alpha": run.alphas[0], "last_alpha": run.alphas[-1], "effective_alpha": math.prod(run.alphas)}
        facts["shortcuts"] = {"variant": _shortcuts(config).get("variant"), **ends}
    data, optim = _part(config, "data"), _part(config, "optim")
    if is_whole(data.get("count")) and is_whole(run.steps) and is_whole(config.get("batch_size")) and data["count"] > 0:
        facts["run"] = {
            "steps": run.steps,
            "batch_size": config["batch_size"],
            "epochs": run.steps * config["batch_size"] / data["count"],
            "optimizer": optim.get("name"),
            "precision": config.get("precision"),
            "compiled": config.get("compile"),
            "seed": run.seed,
        }
    images = f"{data['path']}, {data.get('count', '?')} images" if data.get("path") else ""
    return {"data": images, "model": _model_title(config)} | sentences(facts)


def _model_title(config: dict[str, Any]) -> str:
    if not _part(config, "model"):  # the run has just begun: the default model is not its own
        return ""
    try:
        return from_dict(RunConfig, config).model.title
    except (EcholessError, TypeError, ValueError):
        return ""


def _parameters(about: dict[str, Any]) -> str:
    counts = about.get("parameters")
    if not isinstance(counts, dict) or not all(isinstance(counts.get(key), int) for key in ("all", "encoder")):
        return ""
    return f"{counts['all']:,} in all, {counts['encoder']:,} in the encoder"


def _start(run: RunData) -> str:
    """The weights that the run began with; empty where they were drawn at random."""
    start = _part(run.about, "start")
    known = [str(start[key]) for key in ("path", "fingerprint") if start.get(key)]
    return f"{known[0]} ({known[1]})" if len(known) == 2 else ""


def _time(run: RunData) -> str:
    seconds, sessions = run.about.get("seconds"), run.about.get("sessions")
    started = f", started {run.about['started']}" if run.about.get("started") else ""
    if is_number(seconds) and is_whole(sessions) and seconds > 0:
        ended = run.about.get("ended", 0)
        cut = sessions - ended if is_whole(ended) else 0
        more = f"; {cut} of {sessions} sessions were killed and are not counted" if cut else ""
        return f"{_duration(seconds)}{more}{started}"
    estimate = _estimated_seconds(run)
    return f"about {_duration(estimate)}, from images/s{started}" if estimate else ""


def _estimated_seconds(run: RunData) -> float:
    """Steps times batch over images per second, line by line."""
    batch = run.config.get("batch_size")
    if not isinstance(batch, int):
        return 0.0
    speed = run.series("images_per_second")
    pairs = zip([0, *speed.steps], speed.steps, speed.values)
    return sum((here - before) * batch / value for before, here, value in pairs if value > 0)


def _duration(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def _machine(run: RunData) -> str:
    machine = run.about.get("machine")
    if isinstance(machine, dict):
        device = "" if machine.get("device") == "cpu" else f"{machine.get('device')}, "
        return (
            f"{device}{machine.get('processor')}, {counted(machine.get('cores'), 'core')}, "
            f"{counted(machine.get('threads'), 'thread')} used, "
            f"{machine.get('memory_gb')} GB, {machine.get('system')}"
            + (f", {machine['processes']} processes" if machine.get("processes", 1) != 1 else "")
            + _vectors(machine.get("vector_features"))
        )
    known = [f"{key} {run.environment[key]}" for key in ("device", "machine", "threads") if key in run.environment]
    return ", ".join(known)


def _vectors(features: object) -> str:
    """The widest vector instruction set: the last digits may depend on it."""
    if not isinstance(features, list):
        return ""
    widest = next((name for name in ("avx512f", "avx2", "avx", "sve", "asimd") if name in features), "")
    return f", {widest}" if widest else ""


def _versions(run: RunData) -> str:
    versions = run.about.get("versions")
    if not isinstance(versions, dict):
        versions = {key: run.environment[key] for key in ("echoless", "torch") if key in run.environment}
    return ", ".join(f"{name} {version}" for name, version in versions.items())
