"""The command line: `python -m mutants` with PYTHONPATH=tools; see the package."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import traceback
from itertools import zip_longest
from pathlib import Path

from mutants.draw import draw
from mutants.lines import Lines, collect, load, write_digests
from mutants.mutant import Mutant, read_sources
from mutants.named import named_mutants
from mutants.table import read_results, table
from mutants.work import Limits, Tree, warm_up, work_through

ROOT = Path(__file__).resolve().parents[2]
HOME = ROOT / ".mutants"
MAP, RESULTS = HOME / "map.json", HOME / "results.jsonl"


def main() -> None:
    options = _parsed()
    HOME.mkdir(exist_ok=True)
    if options.map is not None or not MAP.exists():
        make_map(options.map or ["tests"], options.jobs)
    if options.map is None:
        mutants = chosen(options)
        if not options.table:
            run(mutants, options)
        found = read_results(RESULTS)
        print(table([found[mutant.id] for mutant in mutants if mutant.id in found]))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutants", description="Changes the source and asks whether a test notices.")
    parser.add_argument("--map", nargs="*", metavar="TESTS", help="only measure which of these tests runs which line")
    parser.add_argument("--count", type=int, default=200, help="mutants drawn by rule; 0: the named ones alone")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--only", nargs="*", default=[""], help="files whose path begins so, such as measures/")
    parser.add_argument("--resume", action="store_true", help="keep the outcomes of an earlier run")
    parser.add_argument("--again", action="store_true", help="like --resume, but try what was not noticed once more")
    parser.add_argument("--table", action="store_true", help="run nothing, show the outcomes")
    parser.add_argument("--tests", type=int, default=40, help="most tests for one mutant")
    parser.add_argument("--seconds", type=float, default=40, help="most seconds of tests for one mutant")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    return parser.parse_args()


def make_map(tests: list[str], jobs: int) -> None:
    """One run of the tests under coverage: minutes. Tests of files that are not named keep their place in the map."""
    from mutants.observe import SETTINGS, SETTINGS_TEXT

    folder = HOME / "map"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    write_digests(folder, ROOT)
    settings = folder / "settings.ini"
    settings.write_text(SETTINGS_TEXT.format(source=ROOT / "src" / "echoless", folder=folder))
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tools'}", "OMP_NUM_THREADS": "1", SETTINGS: str(settings)}
    command = [sys.executable, "-m", "pytest", "-p", "mutants.observe", "-p", "no:cacheprovider", f"-n{jobs}", *tests]
    subprocess.run(command, cwd=ROOT, env=os.environ | environment)  # tests that fail are left out of the map
    collect(folder, ROOT, MAP)


def chosen(options: argparse.Namespace) -> list[Mutant]:
    """Named and drawn mutants in turn, so that a run that is stopped has tried some of both."""
    sources = read_sources(ROOT)
    pairs = zip_longest(named_mutants(sources, ROOT), draw(sources, options.count, options.seed))
    mutants = [mutant for pair in pairs for mutant in pair if mutant is not None]
    return [mutant for mutant in mutants if mutant.file.startswith(tuple(options.only))]


def run(mutants: list[Mutant], options: argparse.Namespace) -> None:
    """Each job takes every n-th mutant, in a tree of its own."""
    if not (options.resume or options.again):
        RESULTS.unlink(missing_ok=True)
    done = read_results(RESULTS)
    left = [m for m in mutants if m.id not in done or (options.again and not done[m.id]["noticed"])]
    print(f"{len(left)} of {len(mutants)} mutants to try", flush=True)
    warm_up()
    lines, sources, limits = load(MAP), read_sources(ROOT), Limits(options.tests, options.seconds)
    jobs = []
    for job in range(options.jobs):
        child = os.fork()
        if child == 0:
            try:
                tree = Tree(ROOT, HOME / f"tree-{job}")
                work_through(left[job :: options.jobs], lines, sources, tree, limits, RESULTS)
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(0)
        jobs.append(child)
    for child in jobs:
        os.waitpid(child, 0)
    _drop_doubtful([m.id for m in left], lines)


def _drop_doubtful(tried: list[str], lines: Lines) -> None:
    """A test that fails on the unchanged source has noticed nothing; its mutants are to be tried again."""
    records = read_results(RESULTS)
    noticing = {how for id in tried if id in records and (how := records[id]["how"]).startswith("tests/")}
    tree = Tree(ROOT, HOME / "tree-0")
    wrong = tree.failing(sorted(noticing), sum(map(lines.cost, noticing))) if noticing else set()
    if wrong:
        print("fail on the unchanged source; what they noticed is forgotten:", *sorted(wrong), sep="\n  ")
        kept = [record for record in records.values() if record["how"] not in wrong]
        RESULTS.write_text("".join(json.dumps(record) + "\n" for record in kept))


if __name__ == "__main__":
    main()
