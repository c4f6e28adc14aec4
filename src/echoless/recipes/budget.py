"""Which encoder does `auto` train in a given time without a GPU? The table of candidates and the rule.

The numbers here are the whole policy. `verbs/planning.py` measures the speed of the candidates and applies the rule.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from echoless.config import RunConfig
from echoless.config.durations import parse_duration
from echoless.config.facts import DataFacts, natural_size
from echoless.config.options import PretrainOptions
from echoless.errors import ConfigError, NoMemory
from echoless.recipes.continuing import CONTINUE

CPU_SECONDS = 3600.0  # budget on a CPU where none is given; with a GPU there is none
LONGEST = 800  # epochs, the paper's; a small set ends before its time is over
TRAINING_SHARE = 0.95  # of the budget; saving takes the rest
SMALLEST_SHARE = 0.5  # of the budget that is trained for, however long reading took


class Candidate(NamedTuple):
    """`images`: how many training images must fit into the budget for this one to be preferred to the one before."""

    recipe: str
    coarser: int  # factor on the natural patch size (config/facts.py:natural_patch)
    images: int


# From the fastest to the slowest. With 60,000 to 130,000 images, mae-pico has worse neighbours than mae-femto in the
# same time, and an equal linear probe; a coarse patch gives a worse probe, and equal or better neighbours. One seed, in
# docs/results.md, "Which size in which time". The other numbers are not tuned.
CANDIDATES = (
    Candidate("mae-femto", 2, 0),
    Candidate("mae-femto", 1, 100_000),
    Candidate("mae-pico", 1, 500_000),
    Candidate("mae-nano", 1, 1_500_000),
    Candidate("mae-micro", 1, 4_000_000),
)
FEWEST_PATCHES = 4  # per side: a coarser patch than this is not tried


class Choice(NamedTuple):
    candidate: Candidate
    images_per_second: float
    larger: Candidate | None = None  # what more time would allow
    larger_seconds: float = 0.0  # the budget that it needs


def budget_of(options: PretrainOptions, *, accelerated: bool, record: RunConfig | None = None) -> float | None:
    """Seconds to plan for; None where the length is given, recorded, or the recipe's own."""
    if options.time is not None and (options.epochs is not None or options.max_steps is not None):
        raise ConfigError(f"time is {options.time!r}; give one of --time, --epochs and --max-steps")
    given = None if options.time is None else parse_duration("time", options.time)
    if record is not None:
        _refuse_other_time(options, given, record)
        return None
    planned = options.recipe in (None, "auto", CONTINUE) and options.epochs is None and options.max_steps is None
    return CPU_SECONDS if given is None and planned and not accelerated else given


def unfitted(options: PretrainOptions, *, accelerated: bool, record: RunConfig | None = None) -> str:
    """A sentence where the length is given, so that `auto` does not fit the encoder to the machine; else nothing."""
    given = next((name for name in ("max_steps", "epochs") if getattr(options, name) is not None), None)
    decided = accelerated or record is not None or options.init is not None or options.recipe not in (None, "auto")
    if given is None or decided:
        return ""
    flag = f"--{given.replace('_', '-')}"
    return (
        f"plan: {flag} is given, so that the size was not fitted to this machine; --time 1h fits size and length to it"
    )


def _refuse_other_time(options: PretrainOptions, given: float | None, record: RunConfig) -> None:
    """The length of a run is fixed when it starts. A scheduler repeats the same command, with the same time."""
    recorded = None if record.budget is None else record.budget.seconds
    if given is not None and given != recorded:
        was = "was not planned by time" if recorded is None else f"was planned for {recorded:g} s"
        raise ConfigError(
            f"time is {options.time!r}, but the run being resumed {was}; give --max-steps above its "
            f"{record.steps} to change its length"
        )


def candidates_for(facts: DataFacts, patch_size: int | None = None) -> tuple[Candidate, ...]:
    """Those that differ for these images; a patch size that the user gave leaves no choice of it."""
    size, natural = natural_size(facts)
    coarse = patch_size is None and min(size) // (2 * natural) >= FEWEST_PATCHES
    return tuple(candidate for candidate in CANDIDATES if candidate.coarser == 1 or coarse)


def measuring_limit(seconds: float) -> float:
    """Seconds in which the steps of one candidate are timed."""
    return min(8.0, 0.02 * seconds)


def images_in(seconds: float, images_per_second: float, facts: DataFacts, spent: float = 0.0) -> int:
    """Images that are seen in a budget of which `spent` seconds are over, at most `LONGEST` epochs."""
    left = max(TRAINING_SHARE * seconds - spent, SMALLEST_SHARE * seconds)
    return int(min(left * images_per_second, LONGEST * facts.count))


def is_longest(images: int, facts: DataFacts) -> bool:
    """Whether so many images are `LONGEST` epochs, so that more time would change nothing."""
    return images >= LONGEST * facts.count


def choose(
    seconds: float, facts: DataFacts, candidates: tuple[Candidate, ...], measure: Callable[[Candidate], float]
) -> Choice:
    """The last candidate, from the fastest on, for which enough images fit into the budget.

    `measure` returns images per second. A candidate that cannot be reached even by a run of `LONGEST` epochs is not
    measured, and one that has no memory for the batch ends the search, as do those that are too slow. The time that
    reading took does not count here: it is short when the run is repeated.
    """
    chosen = candidates[0]
    speed = measure(chosen)
    for candidate in candidates[1:]:
        if LONGEST * facts.count < candidate.images:
            break
        try:
            slower = measure(candidate)
        except NoMemory:
            break
        if images_in(seconds, slower, facts) < candidate.images:
            return Choice(chosen, speed, candidate, candidate.images / (TRAINING_SHARE * slower))
        chosen, speed = candidate, slower
    return Choice(chosen, speed)
