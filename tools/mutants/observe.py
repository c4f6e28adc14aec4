"""Which test executes which line, and how long does it take? (a plugin of pytest: `-p mutants.observe`)

Coverage measures with one context per test. Two refinements make the map useful for choosing tests:

- A fixture that several tests share (module or session scope) runs in the first of them alone. Its lines get a context
  of their own, and every test that asks for the fixture is counted as executing them.
- Processes that a test starts or forks are measured too; they take the name of the test from the environment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import coverage
import pytest

CONTEXT = "MUTANTS_CONTEXT"  # read by the coverage of child processes, through the settings file
SETTINGS = "MUTANTS_SETTINGS"  # the settings file; its folder receives the records

SETTINGS_TEXT = """\
[run]
source = {source}
data_file = {folder}/data
parallel = true
core = ctrace
context = ${{MUTANTS_CONTEXT-}}
patch = subprocess, fork, _exit
disable_warnings = no-data-collected, module-not-measured, module-not-imported, couldnt-parse, already-imported
"""


class Observer:
    """Switches the context of the running measurement, and notes durations, outcomes and shared fixtures."""

    def __init__(self, settings: Path) -> None:
        self.folder = settings.parent
        self.coverage = coverage.Coverage(config_file=str(settings))
        self.coverage.start()
        self.contexts: list[str] = []
        self.tests: dict[str, dict[str, Any]] = {}
        self.shared_seconds = 0.0  # of processor time, spent in shared fixtures during the current test

    def enter(self, context: str) -> None:
        self.contexts.append(context)
        self._switch(context)

    def leave(self) -> None:
        self.contexts.pop()
        self._switch(self.contexts[-1] if self.contexts else "")

    def _switch(self, context: str) -> None:
        self.coverage.switch_context(context)
        os.environ[CONTEXT] = context

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.shared_seconds = 0.0
        shared = [key for name in getattr(item, "fixturenames", ()) if (key := _shared_fixture(item, name))]
        started = processor_seconds()
        self.tests[item.nodeid] = {"seconds": 0.0, "passed": True, "fixtures": shared}
        self.enter(item.nodeid)
        result = yield
        self.leave()
        self.tests[item.nodeid]["seconds"] = processor_seconds() - started - self.shared_seconds
        self._note({"test": item.nodeid, **self.tests[item.nodeid]})
        return result

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        key = _key(fixturedef)
        started = processor_seconds()
        self.enter(key)
        try:
            return (yield)
        finally:
            self.leave()
            seconds = processor_seconds() - started
            self._note({"fixture": key, "seconds": seconds})
            self.shared_seconds += seconds if len(self.contexts) == 1 else 0.0  # nested ones are inside the outer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tests[report.nodeid]["passed"] &= report.outcome == "passed"

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()

    def _note(self, record: dict[str, Any]) -> None:
        """At once, so that the records of a run that was stopped can be used."""
        with (self.folder / f"tests-{os.getpid()}.jsonl").open("a") as file:
            file.write(json.dumps(record) + "\n")


def processor_seconds() -> float:
    """Of this process and of its children: other work on the machine does not show in it."""
    return sum(os.times()[:4])


def _key(fixturedef: Any) -> str:
    return f"fixture {fixturedef.baseid}::{fixturedef.argname}"


def _shared_fixture(item: Any, name: str) -> str | None:
    """The context of a fixture with a scope beyond one test, or None."""
    found = item._fixtureinfo.name2fixturedefs.get(name)
    return _key(found[-1]) if found and found[-1].scope != "function" else None


def pytest_configure(config: pytest.Config) -> None:
    controller = getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput")
    if not controller:  # the controller of pytest-xdist runs no test
        config.pluginmanager.register(Observer(Path(os.environ[SETTINGS])), "mutants-observer")
