"""Search for seeds that find each planted bug: `python -m tests.simulation.cep.find_mutants [FIRST [LAST]]`."""

import sys

from tests.simulation.cep.histories import run_pattern_seed
from tests.simulation.cep.mutants import MUTANTS
from tests.simulation.planting import Mutant


def is_found(mutant: Mutant, seed: int) -> bool:
    """Whether a seed shows a bug by the matches and time-outs, and keeps its promises without it."""
    with mutant():
        found = {violation.split(":")[0] for violation in run_pattern_seed(seed).violations}
    return "output" in found and not run_pattern_seed(seed).violations


def main(first: int = 1, last: int = 1_000) -> None:
    for mutant in MUTANTS:
        found = (seed for seed in range(first, last + 1) if is_found(mutant, seed))
        print(f"{mutant.__name__:55} {next(found, 'not found')}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
