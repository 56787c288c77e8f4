"""Random queries against DuckDB, as many as you like: `python -m tests.table.differential --queries 2000`."""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time

from hypothesis import HealthCheck, Phase, given, seed, settings
from tests.table.differential.modes import MODES
from tests.table.differential.oracle import answer_of
from tests.table.differential.worlds import World, worlds


def main() -> None:
    """Run as many queries as were asked for; the smallest one that fails is shown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=2000)
    parser.add_argument("--mode", choices=sorted(MODES), default="STREAMING")
    parser.add_argument("--depth", type=int, default=4, help="how many steps a query has at most")
    parser.add_argument("--timed", action="store_true", help="only queries whose last step works by event time")
    parser.add_argument("--versions", action="store_true", help="only queries whose last step finds versions of keys")
    parser.add_argument("--seed", type=int, default=None)
    chosen = parser.parse_args()
    logging.disable(logging.WARNING)
    number = random.SystemRandom().randrange(1 << 32) if chosen.seed is None else chosen.seed
    began, told, done = time.monotonic(), 0.0, 0

    @seed(number)
    @settings(
        max_examples=chosen.queries,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(worlds(chosen.depth, chosen.timed, chosen.versions))
    def agree(world: World) -> None:
        nonlocal told, done
        found, wanted = MODES[chosen.mode](world), answer_of(world)
        assert found == wanted, f"missing {wanted - found}, extra {found - wanted} of {world.query}"
        done += 1
        if time.monotonic() - told > 5:
            told = time.monotonic()
            print(f"{done} of {chosen.queries} queries, {told - began:.0f} s", file=sys.stderr)

    agree()
    print(f"seed {number}: {done} queries in {chosen.mode} give what DuckDB gives, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
