"""Search for seeds that find each planted bug: `python -m tests.simulation.find_mutants [FIRST [LAST]]`."""

import sys
import time

from tests.simulation.mutants import MUTANTS, planted
from tests.simulation.planting import Mutant

from penstock.drivers.simulation.simulation import run_seed


def list_violation_kinds(violations: list[str]) -> set[str]:
    """The first words."""
    return {violation.split(":")[0] for violation in violations}


def find(mutant: Mutant, seeds: range) -> tuple[int, set[str]] | None:
    """The first seed that breaks a promise with the mutant in place and keeps it without, and which promises."""
    for seed in seeds:
        with planted(mutant):
            found = run_seed(seed).violations
        if found and not run_seed(seed).violations:
            return seed, list_violation_kinds(found)
    return None


def main(first: int = 1, last: int = 1_000) -> None:
    for mutant in MUTANTS:
        begun = time.monotonic()
        found = find(mutant, range(first, last + 1))
        seconds = time.monotonic() - begun
        what = "not found" if found is None else f"seed {found[0]}: {', '.join(sorted(found[1]))}"
        print(f"{mutant.__name__:50} {what} ({seconds:.0f} s)", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
