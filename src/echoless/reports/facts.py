"""What was run, in words? Rows of (what, value) for one run, from whatever its folder recorded."""

from __future__ import annotations

from typing import Any

from echoless.reports.collect import RunData, is_number, is_whole
from echoless.reports.figures import recommended

_SAID = ("data", "model", "shortcuts", "run")


def status(run: RunData) -> str:
    if run.complete:
        return f"complete: {run.steps_done} steps"
    if run.steps is not None and run.lines:
        return f"step {run.steps_done} of {run.steps} ({100 * run.steps_done / run.steps:.0f} %)"
    return f"{run.steps_done} steps recorded" if run.lines else "no step recorded yet"


def facts(run: RunData) -> list[tuple[str, str]]:
    """Only what is known."""
    said = _said(run.log)
    rows = [
        ("status", status(run)),
        ("data", said.get("data") or _data(run.config)),
        ("model", said.get("model", "")),
        ("parameters", _parameters(run.about)),
        ("shortcuts", said.get("shortcuts", "")),
        ("fading", recommended(run)),
        ("training", said.get("run", "")),
        ("recipe", str(run.config.get("recipe", ""))),
        ("seed", "" if run.seed is None else str(run.seed)),
        ("time", _time(run)),
        ("machine", _machine(run)),
        ("versions", _versions(run)),
    ]
    return [(name, value) for name, value in rows if value]


def command(run: RunData) -> str:
    """What to type to repeat the run; empty where it was not recorded."""
    return str(run.about.get("command") or "")


def headline(run: RunData) -> str:
    """The setting that this project is about, for the legend."""
    shortcuts = _shortcuts(run.config)
    if shortcuts.get("variant", "faded") != "faded":
        return str(shortcuts["variant"])
    return f"alpha_min {shortcuts['alpha_min']:g}" if is_number(shortcuts.get("alpha_min")) else ""


def _shortcuts(config: dict[str, Any]) -> dict[str, Any]:
    model = config.get("model") if isinstance(config.get("model"), dict) else {}
    assert isinstance(model, dict)
    encoder = model.get("encoder") if isinstance(model.get("encoder"), dict) else model
    found = encoder.get("shortcuts") if isinstance(encoder, dict) else None
    return found if isinstance(found, dict) else {}


def _said(log: list[str]) -> dict[str, str]:
    """The lines with which training announced itself; the latest counts."""
    found = {}
    for line in log:
        word, colon, rest = line.partition(": ")
        if colon and word in _SAID:
            found[word] = rest
    return found


def _data(config: dict[str, Any]) -> str:
    data = config.get("data")
    if not isinstance(data, dict) or not data.get("path"):
        return ""
    return f"{data['path']}, {data.get('count', '?')} images"


def _parameters(about: dict[str, Any]) -> str:
    counts = about.get("parameters")
    if not isinstance(counts, dict) or not all(isinstance(counts.get(key), int) for key in ("all", "encoder")):
        return ""
    return f"{counts['all']:,} in all, {counts['encoder']:,} in the encoder"


def _time(run: RunData) -> str:
    seconds, sessions = run.about.get("seconds"), run.about.get("sessions")
    started = f", begun {run.about['started']}" if run.about.get("started") else ""
    if is_number(seconds) and is_whole(sessions) and seconds > 0:
        ended = run.about.get("ended", 0)
        cut = sessions - ended if is_whole(ended) else 0
        more = f"; {cut} of {sessions} sessions did not end by themselves and are not counted" if cut else ""
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
            f"{device}{machine.get('processor')}, {machine.get('cores')} cores, {machine.get('threads')} threads used, "
            f"{machine.get('memory_gb')} GB, {machine.get('system')}"
            + (f", {machine['processes']} processes" if machine.get("processes", 1) != 1 else "")
        )
    known = [f"{key} {run.environment[key]}" for key in ("device", "machine", "threads") if key in run.environment]
    return ", ".join(known)


def _versions(run: RunData) -> str:
    versions = run.about.get("versions")
    if not isinstance(versions, dict):
        versions = {key: run.environment[key] for key in ("echoless", "torch") if key in run.environment}
    return ", ".join(f"{name} {version}" for name, version in versions.items())
