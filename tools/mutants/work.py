"""Do the tests notice a mutant? A copy of the tree is changed, and a warm process forks to run the tests in it.

Nothing of echoless is imported before the fork, so that the child imports the changed source.
"""

from __future__ import annotations

import compileall
import contextlib
import json
import os
import py_compile
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from mutants.lines import Lines, candidates
from mutants.mutant import Mutant

WARM = (
    "numpy torch torch.nn.functional torch.distributed PIL.Image pyarrow.parquet safetensors.torch scipy.stats "
    "sklearn.linear_model sklearn.cluster sklearn.metrics torch._dynamo torch.optim.swa_utils torch.nn.parallel "
    "pytest hypothesis tyro rich.console jinja2 threadpoolctl"
)


@dataclass(frozen=True)
class Limits:
    tests: int
    seconds: float  # of processor time of the chosen tests, as they took in the measured run

    def chosen(self, tests: Sequence[str], lines: Lines) -> list[str]:
        """As many as the limits allow; the first one always."""
        chosen: list[str] = []
        spent = 0.0
        for test in tests[: self.tests]:
            if chosen and spent + lines.cost(test) > self.seconds:
                continue
            chosen.append(test)
            spent += lines.cost(test)
        return chosen


@dataclass(frozen=True)
class Outcome:
    noticed: bool
    how: str  # the test that failed, "timeout", "import", "not executed" or "survived"
    tests: int
    seconds: float


def warm_up() -> None:
    for name in WARM.split():
        try:
            __import__(name)
        except Exception as error:  # an extra that is not installed: the tests that need it skip
            print(f"not warm: {name} ({error})", file=sys.stderr)
    assert not [name for name in sys.modules if name.split(".")[0] == "echoless"]


class Tree:
    """A copy of the repository's tracked and new files that one worker may change."""

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        shutil.rmtree(place, ignore_errors=True)
        listed = ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        for name in subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split("\0"):
            if name and (root / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, place / name)
        real_images, beside = root.parent / "shared", place.parent / "shared"
        if real_images.is_dir() and not beside.exists():
            beside.symlink_to(real_images)
        # Bytecode is checked by content: a change within the same second must not run the old code.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(str(place / "src"), quiet=2, invalidation_mode=mode)

    def run(self, tests: Sequence[str], limit: float, *, to_the_end: bool = False) -> tuple[int | None, str]:
        """pytest's exit code, None after the time limit, and what it printed; stops at the first failure."""
        with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
            printed = Path(folder, "printed.txt")
            child = os.fork()
            if child == 0:
                _become_pytest(self.place, [*tests, *([] if to_the_end else ["-x"])], printed, Path(folder))
            code = _wait(child, limit)
            return code, printed.read_text(errors="replace") if printed.exists() else ""

    def rehearse(self, lines: Lines) -> None:
        """The fastest tests must pass here on the unchanged source, or nothing that follows means anything."""
        fastest = sorted(lines.seconds, key=lambda test: (lines.seconds[test], test))[:5]
        code, printed = self.run(fastest, limit=300)
        if code != 0:
            raise SystemExit(f"the tests do not pass on the unchanged source:\n{printed}")

    def failing(self, tests: Sequence[str], expected: float) -> set[str]:
        """Those of the tests that fail on the unchanged source: what they noticed was not the mutant."""
        _, printed = self.run(tests, limit=300 + 3 * expected, to_the_end=True)
        return set(_failures(printed))

    def try_out(self, mutant: Mutant, tests: Sequence[str], expected: float) -> Outcome:
        file = self.place / "src" / "echoless" / mutant.file
        source = file.read_bytes()
        started = time.monotonic()
        file.write_bytes(mutant.applied(source))
        try:
            code, printed = self.run(tests, limit=60 + 3 * expected)
        finally:
            file.write_bytes(source)
        # 5: none of the tests is one to be run here.
        known: dict[int | None, str] = {None: "timeout", 0: "survived", 5: "not executed"}
        how = known.get(code) or next(iter(_failures(printed)), "import")
        return Outcome(code not in (0, 5), how, len(tests), round(time.monotonic() - started, 1))


def _become_pytest(place: Path, words: Sequence[str], printed: Path, folder: Path) -> None:
    code = 3
    try:
        os.setsid()  # one group, so that what the tests start can be ended with them
        os.chdir(place)
        descriptor = os.open(printed, os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.environ |= {
            "PYTHONPATH": str(place / "src"),
            "ECHOLESS_CACHE": str(folder / "cache"),
            "OMP_NUM_THREADS": "1",
        }
        sys.path.insert(0, str(place / "src"))
        import pytest

        # Imported before pytest could rewrite its assertions, which changes nothing here.
        quiet = "-Wignore::pytest.PytestAssertRewriteWarning"
        options = [quiet, "-rfE", "--tb=line", "--durations=0", "--hypothesis-seed=0", "-p", "no:cacheprovider"]
        code = int(pytest.main([*options, "-n0", f"--basetemp={folder / 'tests'}", f"--rootdir={place}", *words]))
        sys.stdout.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _wait(child: int, limit: float) -> int | None:
    """The child's exit code, or None if it had to be ended; what it started ends with it.

    The limit is one of processor time, because on a busy machine everything takes long; one that waits for something
    that never comes is ended after ten times as long.
    """
    deadline = time.monotonic() + 10 * limit
    code = None
    while time.monotonic() < deadline and _processor_seconds(child) < limit:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            break
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if code is None:
        os.waitpid(child, 0)
    return code


def _processor_seconds(process: int) -> float:
    """Of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _failures(printed: str) -> list[str]:
    """The tests that failed, as pytest's summary names them."""
    summary = [line for line in printed.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))]
    return [line.split(" ", 1)[1].split(" - ")[0] for line in summary]


def work_through(
    mutants: Sequence[Mutant], lines: Lines, sources: dict[str, bytes], tree: Tree, limits: Limits, results: Path
) -> None:
    """Try one mutant after another; each outcome is one line at the end of the results."""
    tree.rehearse(lines)
    for mutant in mutants:
        tests = limits.chosen(candidates(mutant, lines, sources, tree.place), lines)
        if tests:
            outcome = tree.try_out(mutant, tests, expected=sum(map(lines.cost, tests)))
        else:
            outcome = Outcome(noticed=False, how="not executed", tests=0, seconds=0.0)
        record = {"id": mutant.id, **asdict(mutant), **asdict(outcome)}
        with results.open("a") as file:
            file.write(json.dumps(record) + "\n")
        mark = "noticed" if outcome.noticed else "SURVIVED"
        print(f"{mark:8}  {mutant.file}:{mutant.line}  {outcome.how}  ({outcome.seconds} s)", flush=True)
