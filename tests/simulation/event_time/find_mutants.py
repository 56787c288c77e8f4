"""Search for seeds that find each planted bug: `python -m tests.simulation.event_time.find_mutants [FIRST [LAST]]`."""

import sys

from tests.simulation.event_time.histories import run_event_time_seed
from tests.simulation.event_time.mutants import MUTANTS
from tests.simulation.planting import Mutant


def is_found(mutant: Mutant, seed: int) -> bool:
    """Whether a history breaks a promise with the bug, and none without it."""
    with mutant():
        violations = run_event_time_seed(seed).violations
    return bool(violations) and not run_event_time_seed(seed).violations


def main(first: int = 1, last: int = 200) -> None:
    for mutant in MUTANTS:
        found = (seed for seed in range(first, last + 1) if is_found(mutant, seed))
        print(f"{mutant.__name__:55} {next(found, 'not found')}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
