"""Which mutants are tried? A seeded sample with a share of every package, in an order that may be cut anywhere."""

from __future__ import annotations

import random
from collections import defaultdict

from mutants.mutant import Mutant
from mutants.rules import mutants_of

LEAST = 4  # of every package


def draw(sources: dict[str, bytes], count: int, seed: int) -> list[Mutant]:
    """About `count` mutants. A package's share is that of its lines with mutants; of a line, one mutant is drawn.

    The packages take turns in proportion, so that the first hundred are a sample as fair as the whole.
    """
    by_package: dict[str, list[Mutant]] = defaultdict(list)
    for file, source in sources.items():
        rng = random.Random(f"{seed} {file}")
        lines: dict[int, list[Mutant]] = defaultdict(list)
        for mutant in mutants_of(file, source):
            lines[mutant.line].append(mutant)
        for candidates in lines.values():
            by_package[candidates[0].package].append(rng.choice(candidates))
    total = sum(map(len, by_package.values()))
    placed = []
    for package, candidates in sorted(by_package.items()):
        share = min(len(candidates), max(LEAST, round(count * len(candidates) / total))) if count else 0
        random.Random(f"{seed} {package}").shuffle(candidates)  # a larger count draws the same ones and more
        placed += [((index + 0.5) / share, package, mutant) for index, mutant in enumerate(candidates[:share])]
    return [mutant for _, _, mutant in sorted(placed, key=lambda entry: entry[:2])]
