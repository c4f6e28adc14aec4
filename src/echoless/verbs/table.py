"""Which verbs are there? One row each: its options, its group in the overview, how its result is printed.

`show` is for people, `records` for programs (`--json`); `records_of` suits every result that is data.

`echoless VERB` runs the function of that name in `echoless.verbs.VERB` (`import` is a keyword of Python: `import_`).
Nothing here loads torch.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

from echoless.config import options as of
from echoless.config.counts import counted
from echoless.config.evaluated import NEXT
from echoless.config.metrics import table as metric_table
from echoless.config.options import same_sets_command
from echoless.config.options.fields import summary
from echoless.config.tables import wrapped
from echoless.config.words import tuned_in_words
from echoless.errors import INTERRUPTED, REQUEUE
from echoless.verbs import records as to
from echoless.verbs.records import records_of


def _print_nothing(options: Any, result: Any) -> str:
    return ""


def _succeed(options: Any, result: Any) -> int:
    return 0


@dataclass(frozen=True)
class Verb:
    group: str
    options: type[Any]
    show: Callable[[Any, Any], str] = _print_nothing  # (options, result) -> what the command line prints of it
    exit_code: Callable[[Any, Any], int] = _succeed
    function: str = ""  # "module:name" of a verb from outside; else echoless.verbs.VERB:VERB
    records: Callable[[Any, Any], Iterable[Mapping[str, Any]]] = records_of  # (options, result) -> lines of --json

    @property
    def summary(self) -> str:
        return summary(self.options).rstrip(".")

    @property
    def prints_results(self) -> bool:
        """Whether the verb itself prints its results, while it works."""
        return self.show is _print_nothing


def _as_text(options: Any, result: Any) -> str:
    return "" if result is None else str(result)


def _tuned(options: of.FinetuneOptions, metric: Any) -> str:
    """The number, what it says in plain words beside the frozen features, and how those are measured alike."""
    if metric is None:
        return ""
    from echoless.reports.gains import paired_interval  # torch was loaded to train, and not before
    from echoless.verbs.closing import known_of
    from echoless.verbs.finetune import completed

    measure = same_sets_command(options.run, completed(options))
    out = shlex.quote(str(options.out))
    words = tuned_in_words(metric, known_of(Path(options.run)).newest_results, measure, out, paired_interval)
    command = [f"  {measure}"] if words.next.endswith(measure) else []  # in one line, to be copied
    words = replace(words, next=words.next.removesuffix(measure))
    spoken = [*wrapped(words.verdict), *wrapped(f"{NEXT}{words.next}")]
    return "\n".join([metric_table([metric]), "", *spoken, *command])


def _metrics(options: of.EvaluateOptions, metrics: Any) -> str:
    """Nothing for a helping process, which returns none."""
    return str(metrics) if metrics else ""


def _vectors(options: of.EmbedOptions, rows: int) -> str:
    """With a function that can be called after any installation: pandas is not among what we install."""
    if not rows:
        return ""
    known = {".csv": "pyarrow.csv.read_csv", ".npy": "numpy.load"}
    read = known.get(Path(options.out).suffix, "pyarrow.parquet.read_table")
    files = f" ({counted(sum(1 for _ in Path(options.out).iterdir()), 'file')})" if Path(options.out).is_dir() else ""
    what = "the patch features of {} images" if options.tokens else "{} vectors"
    paths = f"; their paths are in {Path(options.out).with_suffix('.paths.txt')}" if read == "numpy.load" else ""
    written = f"{what.format(rows)} in {options.out}{files}; read them with {read}({str(options.out)!r}){paths}"
    if options.tokens or "," in options.layer:  # not one vector for each image
        return written
    if Path(options.out).suffix in ("", ".parquet"):
        return f"{written}\nnext: echoless search {shlex.quote(str(options.out))} --query IMAGE"
    return f"{written}\nsearch needs parquet: --out {shlex.quote(str(Path(options.out).with_suffix('.parquet')))}"


def _images(options: of.SampleOptions, count: int) -> str:
    return f"{count} images in {options.out}, all of them in {options.out}/samples.npz" if count else ""


def _page(options: of.ReportOptions, path: Any) -> str:
    return f"{path}: {path.stat().st_size / 1e6:.2f} MB"


def _runs(options: of.RunsOptions, listing: Any) -> str:
    if options.action == "rm-results" and listing:
        numbers, (run,) = ", ".join(str(each.number) for each in listing), options.folders
        which = "evaluation" if len(listing) == 1 else "evaluations"
        kept = f"removed {which} {numbers} of {run}; the numbers are kept in {Path(run) / 'results-removed.json'}"
        return f"{listing}\n{kept}"
    if options.action != "rm" or not listing:
        return str(listing)
    return "\n".join(f"removed {run.path} ({run.bytes / 1e6:.1f} MB)" for run in listing)


def _requeue_if_stopped(options: of.PretrainOptions, complete: bool) -> int:
    return 0 if complete else REQUEUE if options.requeue else INTERRUPTED


def _interrupted_if_stopped(options: of.FinetuneOptions, metric: Any) -> int:
    return 0 if metric is not None else INTERRUPTED


def _stopped_or_failed(options: of.SweepOptions, swept: Any) -> int:
    return REQUEUE if swept.stopped else 1 if swept.failed else 0


def _of_outcome(options: of.TrialOptions, outcome: Any) -> int:
    return {"done": 0, "failed": 1, "stopped": REQUEUE}[outcome.state]


def _outcome_line(options: of.TrialOptions, outcome: Any) -> str:
    return f"{options.name}: {outcome.state}" + (f", {outcome.text}" if outcome.text else "")


def _broken(options: of.DoctorOptions, findings: Any) -> int:
    return 1 if any(finding.broken for finding in findings) else 0


TRAIN, MEASURE, EXCHANGE, ABOUT = "train", "measure and look", "other libraries", "about"
VERBS = {
    "demo": Verb(TRAIN, of.DemoOptions, records=to.runs_and_metrics),
    "pretrain": Verb(TRAIN, of.PretrainOptions, exit_code=_requeue_if_stopped, records=to.trained),
    "finetune": Verb(TRAIN, of.FinetuneOptions, _tuned, _interrupted_if_stopped, records=to.tuned),
    "sweep": Verb(TRAIN, of.SweepOptions, exit_code=_stopped_or_failed, records=to.swept),
    "trial": Verb(TRAIN, of.TrialOptions, _outcome_line, _of_outcome, records=to.outcome),
    "evaluate": Verb(MEASURE, of.EvaluateOptions, _metrics),
    "embed": Verb(MEASURE, of.EmbedOptions, _vectors, records=to.vectors),
    "sample": Verb(MEASURE, of.SampleOptions, _images, records=to.images),
    "search": Verb(MEASURE, of.SearchOptions, _as_text, records=to.found_images),
    "report": Verb(MEASURE, of.ReportOptions, _page, records=to.page),
    "serve": Verb(MEASURE, of.ServeOptions),
    "runs": Verb(MEASURE, of.RunsOptions, _runs, records=to.listed_runs),
    "conditioning": Verb(MEASURE, of.ConditioningOptions),
    "inspect": Verb(EXCHANGE, of.InspectOptions, _as_text),
    "export": Verb(EXCHANGE, of.ExportOptions, _as_text),
    "import": Verb(EXCHANGE, of.ImportOptions, _as_text),
    "recipes": Verb(ABOUT, of.RecipesOptions, _as_text, records=to.recipes),
    "doctor": Verb(ABOUT, of.DoctorOptions, exit_code=_broken),
    "completion": Verb(ABOUT, of.CompletionOptions, _as_text, function="echoless.cli.completion:completion"),
}


def function_name(verb: str) -> str:
    """Also the name of its module."""
    return "import_" if verb == "import" else verb


def run(verb: str, options: Any) -> Any:
    """Import the verb's function, and call it."""
    name = function_name(verb)
    module, _, function = (VERBS[verb].function or f"echoless.verbs.{name}:{name}").partition(":")
    return getattr(import_module(module), function).run(options)
