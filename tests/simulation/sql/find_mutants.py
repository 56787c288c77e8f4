"""Search for seeds that find each planted bug: `python -m tests.simulation.sql.find_mutants [FIRST [LAST]]`."""

import sys
from collections.abc import Iterator

from tests.simulation.planting import Mutant
from tests.simulation.sql.histories import run_sql_seed, world_of
from tests.simulation.sql.mutants import MUTANTS, PROCESS_MUTANTS
from tests.simulation.sql.worlds import draw_topology


def seeds_with(words: str, seeds: range, kind: str = "sql") -> Iterator[int]:
    """Those whose query has these words in its name."""
    for seed in seeds:
        query = draw_topology(world_of(seed, kind)).query
        if query is not None and words in query.name:
            yield seed


def is_found(mutant: Mutant, seed: int, kind: str = "sql") -> bool:
    """Whether a seed shows a bug by the rows of the query or their order, and keeps its promises without it."""
    with mutant():
        found = {violation.split(":")[0] for violation in run_sql_seed(seed, kind=kind).violations}
    return not found.isdisjoint(("output", "order")) and not run_sql_seed(seed, kind=kind).violations


def main(first: int = 1, last: int = 1_000) -> None:
    for kind, mutants in (("process", PROCESS_MUTANTS), ("sql", MUTANTS)):
        for mutant, (words, _) in mutants.items():
            found = (seed for seed in seeds_with(words, range(first, last + 1), kind) if is_found(mutant, seed, kind))
            print(f"{mutant.__name__:55} {next(found, 'not found')}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
